"""Run folders: what is refused, and that nothing is overwritten."""

import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import ihlab
from ihlab import Run, train
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.guess import guess_of
from ihlab.measure.metrics import Evaluator
from ihlab.training.find_runs import run_folders
from ihlab.training.listing import slices
from tasks import IGNORE, ConfigError, MQARTask, MultiHopTask


def test_a_run_opens_again(small, whole):
    opened = Run.open(whole.folder)
    assert opened.config == small
    assert opened.metrics.equals(whole.metrics)
    assert opened.checkpoints == small.checkpoint_steps()
    assert opened.done["steps"] == small.steps
    evaluated = Evaluator(small, torch.device("cpu"))(opened.model(10))
    assert evaluated["eval_loss"] == whole.metrics.set_index("step").loc[10, "eval_loss"]
    assert run_folders(whole.folder.parent) == [whole.folder]


def test_missing_things_are_named(small, tmp_path):
    with pytest.raises(ConfigError, match="is not a run folder"):
        Run.open(tmp_path / "nothing")
    run = Run.create(small, tmp_path)
    with pytest.raises(ConfigError, match="no checkpoints yet"):
        run.model()
    with pytest.raises(ConfigError, match="no metrics yet"):
        _ = run.metrics


def test_a_folder_of_another_config_is_left_alone(small, tmp_path):
    folder = Run.create(small, tmp_path).folder
    stored = json.loads((folder / "config.json").read_text())
    stored["lr"] = 123.0
    text = json.dumps(stored)
    (folder / "config.json").write_text(text)
    with pytest.raises(ConfigError, match="folder of another config"):
        train(small, tmp_path)
    assert (folder / "config.json").read_text() == text


@pytest.mark.parametrize("name", ["checkpoints", ".lock", ""])
def test_nothing_is_written_or_removed_through_a_link(small, tmp_path, name):
    folder, elsewhere = Run.create(small, tmp_path / "runs").folder, tmp_path / "elsewhere"
    linked = folder / name
    if linked.exists():
        linked.rename(elsewhere) if name else shutil.move(folder, elsewhere)
    else:
        elsewhere.mkdir()
    if elsewhere.is_dir():
        (elsewhere / ".step-3.safetensors.1.partial").touch()
    linked.symlink_to(elsewhere)
    before = [str(path) for path in elsewhere.rglob("*")]
    with pytest.raises(
        ConfigError, match="is a symbolic link, and nothing is written through links"
    ):
        train(small, tmp_path / "runs", "cpu")
    assert [str(path) for path in elsewhere.rglob("*")] == before


# The stored runs as a table


def test_stored_runs_are_a_table_and_damaged_ones_say_why(small, tmp_path, finished):
    begun = Run.create(small.replace(name="begun", seed=1), tmp_path)
    damaged = [Run.create(small.replace(seed=seed), tmp_path) for seed in (2, 3, 4)]
    config, cut, lost = (run.folder for run in damaged)
    (config / "config.json").write_text("null")
    (cut / "metrics.csv").write_text("step\n0")
    shutil.copytree(finished.folder / "checkpoints", lost / "checkpoints")
    (lost / "config.json").unlink()
    (tmp_path / "something else").mkdir()
    table = ihlab.runs(tmp_path).set_index("run")  # paths, because the runs are not in runs/
    assert set(table.index) == {str(run.folder) for run in (finished, begun, *damaged)}
    own = table.loc[str(finished.folder)]
    assert (own["status"], own["step"], own["steps"], own["problem"]) == ("done", 24, 24, "")
    assert (own["task"], own["vocab_size"], own["length"], own["seed"]) == ("induction", 40, 12, 0)
    assert own["accuracy"] == finished.metrics["accuracy"].iloc[-1]
    assert own["seconds"] == finished.done["seconds"]
    first = table.loc[str(begun.folder)]
    assert (first["status"], first["step"]) == ("unfinished", 0)
    assert math.isnan(first["accuracy"])
    for folder, said in (
        (config, "config.json holds no JSON object"),
        (cut, "metrics.csv is cut"),
        (lost, "no config.json"),
    ):
        row = table.loc[str(folder)]
        assert row["status"] == "damaged"
        assert str(folder) in row["problem"]
        assert said in row["problem"]


CHANGES = {
    "as written": lambda content: content,
    "half a row more": lambda content: content + b"25,1",
    "a digit of the last row": lambda content: content[::-1].replace(b"5", b"6", 1)[::-1],
    "a row less": lambda content: b"".join(content.splitlines(keepends=True)[:-1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_table_of_runs_says_what_opening_each_run_says(tmp_path, finished, change):
    """The table reads the last row alone of metrics that a checkpoint records in full."""
    path = finished.folder / "metrics.csv"
    path.write_bytes(CHANGES[change](path.read_bytes()))
    [row] = ihlab.runs(tmp_path).to_dict("records")
    try:
        last = Run.open(finished.folder).metrics.iloc[-1]
        problem = ""
    except ConfigError as error:
        problem = str(error)
    assert row["problem"] == problem
    assert (not problem) == (change in ("as written", "half a row more"))
    assert problem or (row["step"], row["accuracy"]) == (last["step"], last["accuracy"])


def test_the_table_of_runs_needs_no_torch(tmp_path, finished):
    script = "import sys, ihlab; assert len(ihlab.runs(sys.argv[1])) == 1; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def guessed(batch):
    """The best of three guesses, by brute force."""
    asked = batch.answers != IGNORE
    answers, itself, among = batch.answers[asked], batch.inputs[asked], []
    for row, pos in np.argwhere(asked):
        so_far = {*batch.inputs[row, : pos + 1]} & {*answers} - {batch.inputs[row, pos]}
        among.append((batch.answers[row, pos] in so_far) / max(len(so_far), 1))
    commonest = np.bincount(answers).max() / len(answers)
    return max(np.mean(itself == answers), np.mean(among), commonest)


@pytest.mark.parametrize(
    "task",
    [
        MQARTask(vocab_size=32, length=24),
        MultiHopTask(vocab_size=9, length=33, max_hops=2),
    ],
)
def test_a_guess_is_the_best_of_the_commonest_answer_the_token_itself_and_one_of_the_sequence(task):
    batch = task.batch(24, np.random.default_rng(0))
    assert guess_of(batch) == pytest.approx(guessed(batch))


def test_the_table_shows_the_groups_of_answers_that_differ_and_a_guess(small, tmp_path):
    run = train(small, tmp_path)
    [row] = ihlab.runs(tmp_path).to_dict("records")
    assert row["guess"] == pytest.approx(
        guess_of(draw(small.task, EVAL_SEED, "eval", 0, small.eval_rows)), abs=5e-5
    )
    last = {**dict(run.metrics.iloc[-1]), "accuracy_hops_1": 0.99, "accuracy_hops_2": 0.334}
    even = {f"accuracy_gap_{gap}": 0.5 for gap in (2, 4, 8)}
    assert slices({**last, **even}) == "hops 1: 0.99, 2: 0.33"
