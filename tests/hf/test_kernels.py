"""Stand-in kernels: each document gets what the reference gives it alone; what a kernel does not
know is refused.
"""

import inspect
import subprocess
import sys

import pytest
import torch
from transformers.models.bamba import modeling_bamba as bamba
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.lfm2 import modeling_lfm2 as lfm2
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from ihlab import ConfigError
from ihlab.hf.conformance.__main__ import main
from ihlab.hf.conformance.kernels import KERNELS, stand_in, use_stand_ins

SIZES, LENGTH = [3, 1, 4], 8
BOUNDS = torch.tensor([0, 3, 4, 8])
SEQ_IDX = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2]], dtype=torch.int32)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def convolution():
    x = random(1, LENGTH, 6).transpose(1, 2)
    return {"x": x, "weight": random(6, 3), "bias": random(6)}, {"activation": "silu"}


def scan():
    given = {"x": random(1, LENGTH, 2, 4), "dt": random(1, LENGTH, 2), "A": -random(2).abs()}
    given |= {"B": random(1, LENGTH, 1, 3), "C": random(1, LENGTH, 1, 3), "chunk_size": 2}
    return given, {"D": random(2), "dt_softplus": True, "return_final_states": True}


def delta(gate):
    keys = {name: random(1, LENGTH, 2, size) for name, size in (("q", 4), ("k", 5), ("v", 3))}
    keys["k"] = keys["q"].flip(1)
    gates = {"g": -random(1, LENGTH, *gate).abs(), "beta": random(1, LENGTH, 2).sigmoid()}
    return keys, {**gates, "initial_state": None, "output_final_state": True}


CASES = {
    "causal_conv1d_fn": (lfm2.causal_conv1d_fn, convolution(), {"seq_idx": SEQ_IDX}),
    "mamba_chunk_scan_combined": (bamba.mamba2_chunk_scan, scan(), {"seq_idx": SEQ_IDX}),
    "chunk_gated_delta_rule": (
        qwen.torch_chunk_gated_delta_rule,
        delta([2]),
        {"cu_seqlens": BOUNDS},
    ),
    "chunk_kda": (kimi.chunk_kimi_delta_attention, delta([2, 4]), {"cu_seqlens": BOUNDS}),
}


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", CASES)
def test_each_document_is_what_the_reference_gives_it_alone(name):
    decorated, (given, options), documents = CASES[name]
    reference, axis = inspect.unwrap(decorated), KERNELS[name].axis
    per_token = KERNELS[name].tokens.split()
    pieces, finals = [], []
    for start, size in zip(BOUNDS.tolist(), SIZES, strict=False):
        parts = {
            key: x.narrow(axis, start, size) if key in per_token else x
            for key, x in (given | options).items()
        }
        result = outputs(
            reference(*(parts[key] for key in given), **{key: parts[key] for key in options})
        )
        pieces.append(result[0])
        finals.extend(result[1:])
    run = stand_in(name, reference)
    whole, right = (outputs(one(*given.values(), **options)) for one in (run, reference))
    assert all(map(torch.equal, whole, right))
    found, *states = outputs(run(*given.values(), **options, **documents))
    torch.testing.assert_close(found, torch.cat(pieces, dim=axis))
    if finals:
        kept = finals if "cu_seqlens" in documents else finals[-1:]
        torch.testing.assert_close(states[0], torch.cat(kept))


def test_rows_have_documents_of_their_own():
    run = stand_in("causal_conv1d_fn", inspect.unwrap(lfm2.causal_conv1d_fn))
    (given, options), _ = CASES["causal_conv1d_fn"][1], None
    x = torch.cat([given["x"], given["x"]]).transpose(1, 2).contiguous().transpose(1, 2)
    other = torch.tensor([[0] * 5 + [1] * 3], dtype=torch.int32)
    both = run(x, given["weight"], given["bias"], seq_idx=torch.cat([SEQ_IDX, other]), **options)
    for row, documents in ((0, SEQ_IDX), (1, other)):
        assert torch.equal(both[row : row + 1], run(*given.values(), seq_idx=documents, **options))


def called(name, **changes):
    decorated, (given, options), documents = CASES[name]
    values = given | {key: x for key, x in changes.items() if key in given}
    keywords = options | documents | {key: x for key, x in changes.items() if key not in given}
    return lambda: stand_in(name, inspect.unwrap(decorated))(*values.values(), **keywords)


@pytest.mark.parametrize("name", KERNELS)
def test_an_argument_that_the_kernel_does_not_know_is_refused(name):
    with pytest.raises(TypeError, match="cu_seq_lens_q"):
        stand_in(name, lambda *given: None)(
            *[1] * len(KERNELS[name].names.split("=")[0].split()[:-1]), cu_seq_lens_q=1
        )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            called("causal_conv1d_fn", seq_idx=SEQ_IDX.long()),
            "seq_idx is torch.int64, but must be int32",
        ),
        (
            called("causal_conv1d_fn", x=random(1, 6, LENGTH)),
            "seq_idx needs channels in the last place",
        ),
        (called("mamba_chunk_scan_combined", z=random(1)), "the reference of this family has no z"),
    ],
)
def test_what_the_kernel_refuses_is_refused(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()


def test_stand_ins_come_before_the_modelling_files():
    with pytest.raises(ConfigError, match=r"modeling_lfm2.* was imported before use_stand_ins"):
        use_stand_ins()
    assert main(["--family", "lfm2", "--kernels", "stand-in"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "named"),
    [
        pytest.param("bamba", {}, marks=pytest.mark.rare),
        ("olmo_hybrid", {"seq_idx"}),
        pytest.param("kimi_linear", {"seq_idx", "cu_seqlens"}, marks=pytest.mark.rare),
    ],
)
def test_the_command_checks_packed_documents_without_a_gpu(family, named):
    command = [
        sys.executable,
        "-m",
        "ihlab.hf.conformance",
        "--family",
        family,
        "--kernels",
        "stand-in",
    ]
    done = subprocess.run(
        [*command, "--checks", "seq_idx", "cu_seqlens"], capture_output=True, text=True, check=False
    )
    outcomes = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[:2]}
    assert outcomes == {
        check: "FAIL" if check in named else "pass" for check in ("seq_idx", "cu_seqlens")
    }
