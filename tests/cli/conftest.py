"""A folder of tiny trained runs, and a command that must fail."""

import pytest

from ihlab import ModelConfig, RunConfig, train
from ihlab.cli import main
from tasks import InductionTask


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Runs small (one KV shifting layer, two heads), small-2 and plain (two vanilla layers), 12
    steps each.
    """
    folder = tmp_path_factory.mktemp("opened") / "runs"
    task = InductionTask(vocab_size=40, length=12)
    kinds = {"small": (1, "kv_shift", 0), "small-2": (1, "kv_shift", 1), "plain": (2, "vanilla", 0)}
    for name, (n_layers, attention, seed) in kinds.items():
        model = ModelConfig(
            n_layers=n_layers, d_model=8, n_heads=2, d_vocab=40, n_ctx=12, attention=attention
        )
        train(
            RunConfig(
                name=name, task=task, model=model, seed=seed, steps=12, batch_size=8, eval_rows=32,
                eval_every=4, checkpoints=3,
            ),
            folder,
        )  # fmt: skip
    return folder


@pytest.fixture
def fails(capsys):
    """Runs a command that must exit, and returns its exit code and what it printed."""

    def run(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stopped:
            main(args)
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), printed.err + printed.out

    return run
