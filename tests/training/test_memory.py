"""The estimate is what a process is seen to hold."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from ihlab import ModelConfig, RunConfig, Transformer, train
from ihlab.model.variants import VARIANTS
from ihlab.training.config import to_dict
from ihlab.training.memory import LAYER_OBJECTS, least_memory, memory_estimate, weights_memory
from tasks import ConfigError, InductionTask

pytestmark = pytest.mark.slow

MEASURE = """
    import gc, json, sys, tempfile, torch
    from ihlab.training import single
    from ihlab.training.config import from_dict
    from ihlab.training.distributed import Ranks
    from ihlab.training.run import Run
    torch.set_num_threads(1)

    def resident(what):
        return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(what)).split()[1])

    def train(config, steps=3):
        with tempfile.TemporaryDirectory() as root:
            training = single.SingleModel(Run.create(config, root), Ranks(0, 1, torch.device("cpu")), None)
            for pieces in training.stream.steps(0, steps):
                training.train_step(pieces)

    configs = [from_dict(config) for config in json.loads(sys.argv[1])]
    train(configs[0].but(batch_size=4, accumulate=1))  # what is compiled and loaded once
    for config in configs:
        gc.collect()
        before = resident("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts from here
        train(config)
        print(resident("VmHWM") - before)
"""


def config_of(rows, length, vocab_size, **model):
    task = InductionTask(vocab_size=vocab_size, length=length)
    shape = {"n_layers": 2, "d_model": 64, "n_heads": 4, **model}
    return RunConfig(
        task=task, model=ModelConfig(**shape, d_vocab=vocab_size, n_ctx=length), batch_size=rows, eval_rows=1
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="resident memory is read from /proc")
def test_the_estimate_is_within_a_quarter_of_what_training_holds():
    """Mostly activations, mostly logits, mostly parameters; in pieces; in bf16.

    Large blocks go back at once when freed: resident memory is then what is held, not what is kept for later.
    """
    configs = [
        config_of(64, 128, 512, attention="kv_shift"),
        config_of(64, 128, 512, attention="kv_shift").but(accumulate=2),
        config_of(16, 512, 4000),
        config_of(16, 64, 2000, n_layers=3, d_model=512),
        config_of(64, 128, 512, positional="learned", norm="layer", mlp="gelu").but(precision="bf16"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), json.dumps([to_dict(config) for config in configs])],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "OMP_NUM_THREADS": "1"},
    )
    measured = [int(line) for line in done.stdout.split()]
    ratios = [memory_estimate(config) / seen for config, seen in zip(configs, measured, strict=True)]
    assert all(0.75 < ratio < 1.25 for ratio in ratios), ratios


@pytest.mark.parametrize("device", ["quantum", "cuda:99"])
def test_a_device_that_is_not_here_is_refused(device):
    with pytest.raises(ConfigError, match=f"device '{device}' cannot be used here"):
        memory_estimate(config_of(1, 8, 512), device)


def test_parameters_count_four_times():
    """A model that is all embedding: its weights, their gradient and two moments."""
    small, large = config_of(1, 8, 512), config_of(1, 8, 512)
    more = 100_000
    large = large.but(model=large.model.but(d_vocab=512 + more, tied_embeddings=True))
    small = small.but(model=small.model.but(tied_embeddings=True))
    grown = memory_estimate(large) - memory_estimate(small)
    weights = 4 * 4 * 64 * more
    assert weights <= grown < 1.2 * weights


def test_pieces_hold_less_than_the_whole():
    whole = config_of(64, 64, 128)
    half, quarter = (memory_estimate(whole.but(accumulate=pieces)) for pieces in (2, 4))
    assert quarter < half < memory_estimate(whole)
    fixed = 2 * quarter - half  # what does not shrink: the parameters' share
    assert memory_estimate(whole) - fixed == pytest.approx(4 * (quarter - fixed), rel=0.05)


SHAPES = [
    {},
    {"attention": "kv_shift"},
    {"mlp": "gelu", "norm": "layer", "positional": "learned"},
    {"mlp": "none", "n_key_value_heads": 1},
    {"tied_embeddings": True},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_layers", [1, 4])
def test_the_quick_bound_is_a_bound(shape, n_layers):
    """And no less than an eighth: sizes that cannot be are far beyond it."""
    config = config_of(64, 64, 200, n_layers=n_layers, **shape)
    config = config.but(task=InductionTask(vocab_size=200, length=64, score="first"))
    weights, activations, *_ = least_memory(config).values()
    estimate = memory_estimate(config)
    objects = n_layers * LAYER_OBJECTS  # which the estimate leaves out
    assert estimate / 8 < weights - objects + activations <= estimate
    held = sum(p.numel() * p.element_size() for p in Transformer(config.model).parameters())
    assert 0.9 * held < weights_memory(config.model) <= held


@pytest.mark.parametrize("attention", VARIANTS)
def test_no_variant_has_fewer_weights_than_are_counted(attention):
    """Or a model that fits would be refused."""
    narrow = {"mla_rank": 4, "mla_rope_width": 2} if attention.startswith("mla") else {}
    model = ModelConfig(n_layers=2, d_model=64, n_heads=4, d_vocab=20, n_ctx=12, attention=attention, **narrow)
    held = sum(p.numel() * p.element_size() for p in Transformer(model).parameters())
    assert 0.8 * held < weights_memory(model) <= held


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 10**12}, "batch_size"),
        ({"eval_rows": 10**12}, "eval_rows"),
        ({"n_layers": 10**8}, "n_layers=100000000"),
        ({"d_vocab": 10**12}, "d_vocab=1000000000000"),
        ({"n_ctx": 10**12}, "n_ctx=1000000000000"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_it_has_a_folder(tmp_path, change, words):
    config = config_of(1, 8, 40)
    of_model = {name: value for name, value in change.items() if name in type(config.model).__dataclass_fields__}
    config = config.but(model=config.model.but(**of_model), **{k: v for k, v in change.items() if k not in of_model})
    for members in (None, 2):
        with pytest.raises(ConfigError, match=rf"at least .* of memory, most of it for .*{words}"):
            train(config, tmp_path, "cpu", members=members)
    assert not list(tmp_path.iterdir())


def test_more_members_than_folders_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="members is 100000000, but must be at most 10000"):
        train(config_of(1, 8, 40), tmp_path, "cpu", members=10**8)
