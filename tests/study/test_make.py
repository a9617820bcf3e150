"""From an experiment to its folder. Nothing is trained here: a worker pool is planted."""

import pandas as pd
import pytest
from rich.console import Console

from ihlab import InductionTask, ModelConfig, RunConfig
from ihlab.storage.files import write_json
from ihlab.study import make as module
from ihlab.study.experiment import Planned
from ihlab.study.ledger import Folder
from ihlab.study.make import make
from tests.published import Made

TASK = InductionTask(vocab_size=32, length=8)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=32, n_ctx=8)

DONE = {"steps": 4, "n_params": 1, "seconds": 0.0, "device": "cpu", "threads": 1}


def config(seed: int) -> RunConfig:
    return RunConfig(task=TASK, model=MODEL, name=f"run-{seed}", seed=seed, steps=4)


class Seeds(Made):
    """An experiment whose runs are those of the given seeds, and in a second stage one more."""

    def __init__(self, *seeds, more):
        super().__init__()
        self.seeds, self.more = seeds, more

    def runs(self, scale):
        return [Planned("curve", config(seed)) for seed in self.seeds]

    def follow(self, trained, scale):
        assert [run.config.seed for _, run in trained] == list(self.seeds)
        return [Planned("curve", config(seed)) for seed in self.more]

    def gather(self, trained, scale):
        return pd.DataFrame({"x": [run.config.seed for _, run in trained]})


@pytest.fixture
def events(monkeypatch):
    """What was trained, as the seeds of each pool, and which bar it had."""
    found: list[object] = []

    def train_all(configs, root, device, jobs, on_update, stacked):
        found.append([config.seed for config in configs])
        for i, each in enumerate(configs):
            write_json(each.folder(root) / "done.json", DONE)
            on_update((i, each.steps, {}))

    monkeypatch.setattr(module, "train_all", train_all)
    return found


def test_no_run_is_trained_twice_and_the_second_stage_follows_the_first(events, tmp_path):
    folder = Folder(tmp_path / "made", "smoke")
    experiment, quiet = Seeds(1, 2, more=[2, 3]), Console(quiet=True)
    assert make(experiment, folder, 1, "cpu", tmp_path / "runs", quiet) == 4
    assert events == [[1, 2], [3]]
    assert folder.data()["x"].tolist() == [1, 2, 2, 3]
