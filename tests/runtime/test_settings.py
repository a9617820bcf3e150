"""Results are determined by their arguments: settings that the calling code has on do not change
them, and stay on.
"""

import random
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from ihlab import ModelConfig, Transformer, fork, train
from ihlab.attribution import attribute, compare, exact, problem
from ihlab.interp.ablation import ablate_together
from ihlab.interp.circuits import eigenvalue_copying, qk_circuit
from ihlab.interp.heads import head_scores, locate_induction_heads
from ihlab.interp.monitor import HeadMonitor
from ihlab.interp.patching import path_effects, without_key_path
from ihlab.measure.gathered import evaluation_batch
from ihlab.measure.metrics import Evaluator, held_out
from ihlab.model.conversion import from_llama, to_llama
from ihlab.viewer import view
from tasks import ConfigError, InductionTask

TASK = InductionTask(vocab_size=40, length=12)
BATCH = TASK.batch(8, np.random.default_rng(0))
IDS, OTHER = torch.arange(16).reshape(2, 1, 8)


@contextmanager
def set_to(get, put, value, *more):
    before = get()
    put(value, *more)
    try:
        yield
        assert get() == value
    finally:
        put(before)


class Doubles(TorchFunctionMode):
    """A mode that changes what torch computes."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return (
            result.double()
            if isinstance(result, torch.Tensor) and result.dtype is torch.float32
            else result
        )


@contextmanager
def seeded():
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(7)
    yield


@contextmanager
def warnings_raise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def precision(value):
    return set_to(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, value)


def backend(owner, name, value):
    return set_to(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), value)


SETTINGS = {
    "bf16": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta": lambda: torch.device("meta"),
    "float64": lambda: set_to(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "matmul": lambda: precision("medium"),
    "matmul_of_a_backend": lambda: backend(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "deterministic": lambda: set_to(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "unfused": lambda: sdpa_kernel(SDPBackend.MATH),
    "no_kernel": lambda: sdpa_kernel([]),
    "seeds": seeded,
    "numpy_raises": lambda: np.errstate(all="raise"),
    "warnings": warnings_raise,
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "saved_tensors": lambda: torch.autograd.graph.saved_tensors_hooks(
        torch.zeros_like, lambda x: x
    ),
    "functions": Doubles,
}


def trained(run):
    return run.metrics, run.model()


CALLS = {
    "train": lambda run, new: trained(train(run.config, new)),
    "stack": lambda run, new: [trained(member) for member in train(run.config, new, members=2)],
    "fork": lambda run, new: trained(fork(run, 0, steps=run.config.steps, root=new)),
    "evaluate": lambda run, new: Evaluator(run.config, torch.device("cpu"))(run.model()),
    "held_out": lambda run, new: held_out(run.model(), [evaluation_batch(BATCH)]),
    "score": lambda run, new: head_scores(run, BATCH, rows=4),
    "locate": lambda run, new: locate_induction_heads(MODEL, batch=BATCH, rows=4, probes=2),
    "monitor": lambda run, new: watched(HeadMonitor(MODEL, rows=4)),
    "hugging_face": lambda run, new: head_scores(
        to_llama(MODEL), BATCH, rows=4, length=12, ids=range(40)
    ),
    "convert": lambda run, new: from_llama(to_llama(MODEL)),
    "ablate": lambda run, new: ablate_together(MODEL, BATCH, [(0, 0)]),
    "patch": lambda run, new: path_effects(
        MODEL, IDS, OTHER, lambda logits: logits.square().mean()
    ),
    "patch_keys": lambda run, new: without_key_path(MODEL, IDS, (0, 0), (1, 1)),
    "make": lambda run, new: Transformer(MODEL.cfg.replace(attention="qkv_shift"), seed=3),
    "exact": lambda run, new: exact(problem(MODEL, TASK, size=4), "head"),
    "attribute": lambda run, new: attribute(problem(MODEL, TASK, size=4), "eap-ig"),
    "compare": lambda run, new: compare(problem(MODEL, TASK, size=4), ["zero-ablation"]).drop(
        columns=["seconds", "relative"]
    ),
    "circuits": lambda run, new: [eigenvalue_copying(MODEL), qk_circuit(MODEL, 1, 1).A],
    "generate": lambda run, new: MODEL.generate(IDS, 4),
    "view": lambda run, new: view(run).html,
}

BROAD = ("train", "score", "generate")
"""Calls that are tried under every setting; the others are tried under those of `STRONG`, which
change all numbers.
"""

STRONG = ("bf16", "meta", "float64")

SLOW = ("stack", "fork", "hugging_face")


def marked(name, *more):
    return pytest.param(name, *more, marks=[pytest.mark.slow] * (name in SLOW))


PAIRS = [
    marked(name, setting) for name in CALLS for setting in (SETTINGS if name in BROAD else STRONG)
]


def watched(monitor):
    monitor(0)
    return monitor.table


MODEL = Transformer(ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=40, n_ctx=12), seed=0)


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    short = small.replace(steps=6, eval_every=2, eval_rows=16, checkpoints=2)
    return train(short, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def alone(run, tmp_path_factory):
    """The results without any setting of a caller."""
    return {name: call(run, tmp_path_factory.mktemp(name)) for name, call in CALLS.items()}


def assert_same(found, right):
    assert type(found) is type(right)
    if isinstance(right, torch.nn.Module):
        assert_same(found.state_dict(), right.state_dict())
    elif isinstance(right, torch.Tensor):
        assert torch.equal(found, right)
        assert (found.dtype, found.is_inference()) == (right.dtype, False)
    elif isinstance(right, pd.DataFrame):
        pd.testing.assert_frame_equal(found, right, check_exact=True)
    elif isinstance(right, (dict, list, tuple)):
        pairs = zip(
            *(x.values() if isinstance(x, dict) else x for x in (found, right)), strict=True
        )
        assert all(assert_same(*pair) is None for pair in pairs)
    else:
        assert found == right


@pytest.mark.parametrize(("name", "setting"), PAIRS)
def test_a_result_is_the_same_under_any_setting_of_the_caller(run, alone, tmp_path, name, setting):
    with SETTINGS[setting]():
        found = CALLS[name](run, tmp_path)
    assert_same(found, alone[name])


def in_a_mode(call):
    with FakeTensorMode():
        call()


REFUSED = {
    "fake": (in_a_mode, "A mode of torch in which tensors have no values is on"),
    "vmap": (
        lambda call: torch.vmap(lambda x: [x, call()][0])(torch.ones(1)),
        "A transform of torch.func is running",
    ),
    "grad": (
        lambda call: torch.func.grad(lambda x: [x, call()][0])(torch.tensor(1.0)),
        "A transform of torch.func is running",
    ),
}


@pytest.mark.parametrize(
    ("name", "under"),
    [
        *(marked(name, "fake") for name in BROAD),
        ("train", "vmap"),
        ("train", "grad"),
    ],
)
def test_a_mode_or_transform_without_values_is_refused_before_anything_is_written(
    run, tmp_path, name, under
):
    wrap, message = REFUSED[under]
    with pytest.raises(ConfigError, match=message):
        wrap(lambda: CALLS[name](run, tmp_path))
    assert not list(tmp_path.iterdir())
