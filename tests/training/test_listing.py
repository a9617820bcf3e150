"""The stored runs as a table: damaged ones are named, and the others listed."""

import math

import pytest

import ihlab
from ihlab import train
from ihlab.training.run import Run
from tasks import ConfigError


def test_stored_runs_are_a_table_and_damaged_ones_say_why(small, tmp_path):
    done, begun = train(small, tmp_path), Run.create(small.replace(name="begun", seed=1), tmp_path)
    config, cut, lost = (train(small.replace(name=f"x{seed}", seed=seed), tmp_path) for seed in (2, 3, 4))
    (config.folder / "config.json").write_text("null")
    (cut.folder / "metrics.csv").write_text("step\n0")
    (lost.folder / "config.json").unlink()
    (tmp_path / "something else").mkdir()
    table = ihlab.runs(tmp_path).set_index("run")
    assert set(table.index) == {run.folder.name for run in (done, begun, config, cut, lost)}
    own = table.loc[done.folder.name]
    assert (own["status"], own["step"], own["steps"], own["problem"]) == ("done", 24, 24, "")
    assert (own["task"], own["vocab_size"], own["length"], own["seed"]) == ("induction", 40, 12, 0)
    assert own["accuracy"] == done.metrics["accuracy"].iloc[-1]
    assert own["seconds"] == done.done["seconds"]
    first = table.loc[begun.folder.name]
    assert (first["status"], first["step"]) == ("unfinished", 0)
    assert math.isnan(first["accuracy"])
    for run, file in (
        (config, "config.json holds no JSON object"),
        (cut, "metrics.csv is cut"),
        (lost, "no config.json"),
    ):
        row = table.loc[run.folder.name]
        assert row["status"] == "damaged"
        assert str(run.folder) in row["problem"]
        assert file in row["problem"]


def test_a_folder_without_runs_is_an_empty_table_and_no_folder_is_refused(tmp_path):
    assert len(ihlab.runs(tmp_path)) == 0
    with pytest.raises(ConfigError, match=r"There are no runs in .*nowhere \(No such file or directory\)\."):
        ihlab.runs(tmp_path / "nowhere")


def test_metrics_that_are_gone_are_damage_once_there_are_checkpoints(small, tmp_path):
    run = train(small, tmp_path)
    (run.folder / "metrics.csv").unlink()
    assert ihlab.runs(tmp_path)["problem"].tolist() == [f"{run.folder} has no metrics yet."]
