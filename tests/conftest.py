"""For every test: array shapes are checked at run time in its first calls, one thread, examples the same each run.

The slow tests, run by themselves (`-m slow`), go without the shape checks.
"""

import multiprocessing
import signal
from importlib.util import find_spec
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings

from tests.shapes import check_again


def _checked_modules() -> list[str]:
    """Modules that say the shapes of their arrays. (The types of all others are mypy's to check.)"""
    roots = [Path(next(iter(find_spec(name).submodule_search_locations))) for name in ("ihlab", "tasks")]
    paths = [(path, root.parent) for root in roots for path in sorted(root.rglob("*.py"))]
    return [
        ".".join(path.relative_to(above).with_suffix("").parts)
        for path, above in paths
        if "from jaxtyping import" in path.read_text(encoding="utf-8")
    ]


# A shell starts what it puts in the background with Ctrl-C ignored, and every process started from there inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ihlab", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("ihlab")


# At once: the conftest.py of a folder that is named to pytest imports these packages before pytest is configured.
_checking = jaxtyping.install_import_hook(_checked_modules(), "tests.shapes.checked")


def pytest_configure(config: pytest.Config) -> None:
    """Leave shapes unchecked where only slow tests are asked for."""
    if config.option.markexpr == "slow":
        _checking.uninstall()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only slow tests are asked for, leave out the files that have none: importing all takes seconds."""
    if config.option.markexpr == "slow" and collection_path.name.startswith("test_"):
        return "mark.slow" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run, one thread: the process that only shares them out need not import torch.

    They begin with iGSM, so that one of pytest's workers gets all of it: a new clone compiles its kernels for 20 s.
    """
    import torch

    torch.set_num_threads(1)
    items.sort(key=lambda item: "igsm" not in str(item.path.relative_to(Path(__file__).parent)))


@pytest.fixture(autouse=True)
def shapes():
    """Check the shapes of arrays in each test's first calls (`tests.shapes`)."""
    check_again()


@pytest.fixture(scope="session", autouse=True)
def forked_workers():
    """Fork the workers of pools from a process that has everything imported: each would take seconds to start."""
    from ihlab.sweep import pool
    from tests.forked import CONTEXT

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_context", CONTEXT)
        yield


@pytest.fixture
def spawned_workers(monkeypatch):
    """Start the workers of pools as users do."""
    monkeypatch.setattr("ihlab.sweep.pool._context", multiprocessing.get_context("spawn"))


@pytest.fixture
def unchecked(monkeypatch):
    """Without the check of shapes, as users have it: the check would refuse a field's type before the class does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def small():
    """A run small enough to train in a second."""
    from ihlab import ModelConfig, RunConfig
    from tasks import InductionTask

    return RunConfig(
        task=InductionTask(vocab_size=40, length=12),
        model=ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12, attention="kv_shift"),
        name="small",
        steps=24,
        batch_size=8,
        warmup=4,
        lr=1e-2,
        eval_every=5,
        eval_rows=40,
        checkpoints=4,
    )


@pytest.fixture(scope="session")
def learner(small):
    """A run that learns a little: with seeds 0, 1 and 3 its accuracy passes 20% on the way, with seed 2 it does not."""
    from tasks import InductionTask

    return small.replace(
        task=InductionTask(vocab_size=24, length=12), model=small.model.replace(d_vocab=24), steps=60, batch_size=32,
        lr=3e-2, eval_growth=0.0, eval_rows=128,
    )  # fmt: skip
