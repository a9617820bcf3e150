"""The table of a sweep: what the run folders say, and a CSV that replaces no other file."""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab import ModelConfig, Run, RunConfig, train
from ihlab.storage.files import write_json
from ihlab.sweep.grid import Point
from ihlab.sweep.results import as_table, result_row, write_results
from tasks import ConfigError, MultiHopTask

MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=40, n_ctx=24)
CONFIG = RunConfig(
    task=MultiHopTask(vocab_size=40, length=24, max_hops=2), model=MODEL, name="small", steps=4, batch_size=2,
    eval_rows=8, eval_every=2, checkpoints=2,
)  # fmt: skip


def point(seed, **changes):
    return Point({"seed": seed}, CONFIG.replace(seed=seed, **changes))


def stored(at, root, accuracy, done=False, diverged=False):
    """A run folder with these accuracies at steps 0, 10, 20, ... as training would leave it."""
    folder = at.config.folder(root)
    steps = 10 * np.arange(len(accuracy))
    columns = {
        "step": steps,
        "tokens": 48 * steps,
        "train_loss": 3.0,
        "eval_loss": 2.0 - steps / 100,
    }
    metrics = pd.DataFrame(
        {**columns, "accuracy": 0.25, "accuracy_first": accuracy, "accuracy_hops_2": 0.125}
    )
    folder.mkdir(parents=True)
    metrics.to_csv(folder / "metrics.csv", index=False)
    if done:
        write_json(folder / "done.json", {"n_params": 1234, "seconds": 5.5, "steps": 40})
    if diverged:
        write_json(folder / "diverged.json", {"step": 35, "lr": 0.01})
    return result_row(at, root)


def test_a_finished_run_as_training_leaves_it(tmp_path):
    run = train(CONFIG.replace(seed=3), tmp_path)
    row = result_row(point(3), tmp_path)
    last = run.metrics.iloc[-1]
    assert Run.open(row["run"]).folder == run.folder
    assert (row["seed"], row["status"], row["error"]) == (3, "done", "")
    assert (row["n_params"], row["seconds"]) == (run.done["n_params"], run.done["seconds"])
    for name in "step tokens train_loss eval_loss accuracy accuracy_first accuracy_hops_2".split():
        assert row[name] == last[name], name
    assert not [name for name in row if name.startswith(("prefix", "alpha"))]


def test_steps_to_90_is_the_first_evaluation_that_reaches_it(tmp_path):
    never = {"done": math.inf, "diverged": math.inf, "unfinished": math.nan}
    for status, expected in never.items():
        ends = {"done": status == "done", "diverged": status == "diverged"}
        row = stored(point(0), tmp_path / status, (0.1, 0.8, 0.9, 0.7), **ends)
        assert (row["status"], row["step"], row["accuracy_hops_2"]) == (status, 30, 0.125)
        assert row["steps_to_90"] == 20
        row = stored(point(1), tmp_path / status, (0.1, 0.8, 0.89, 0.7), **ends)
        assert row["steps_to_90"] == pytest.approx(expected, nan_ok=True)


def test_what_a_folder_says_goes_before_an_error(tmp_path):
    stored(point(0), tmp_path, [1.0], done=True, diverged=True)
    done = result_row(point(0), tmp_path, "tried in vain")
    assert (done["status"], done["error"], done["seconds"]) == ("done", "", 5.5)
    diverged = stored(point(1), tmp_path, [0.0], diverged=True)
    assert (diverged["status"], diverged["error"]) == (
        "diverged",
        "The loss is not finite at step 35.",
    )
    assert math.isnan(diverged["seconds"])
    failed, new = result_row(point(2), tmp_path, "no space"), result_row(point(2), tmp_path)
    assert (failed["status"], failed["error"]) == ("failed", "no space")
    assert (new["status"], new["error"]) == ("unfinished", "")
    assert not point(2).config.folder(tmp_path).exists()


@pytest.mark.parametrize("content", ["", "x,y\n1,2\n", "\x00\x01"])
def test_other_files_are_left_alone(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(
        ConfigError, match=r"table\.csv is not the table of a sweep; nothing was changed"
    ):
        write_results(as_table([result_row(point(0), tmp_path)]), path)
    assert path.read_text() == content
