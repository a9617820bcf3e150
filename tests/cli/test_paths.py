"""Runs are found by what people type, and nothing is written where it must not be."""

from pathlib import Path

import pytest

from ihlab.cli.paths import check_output, find_run
from tasks.config import ConfigError


def test_of_many_candidates_a_few_are_listed(tmp_path):
    for number in range(9):
        (tmp_path / f"run-{number}" / "config.json").parent.mkdir()
        (tmp_path / f"run-{number}" / "config.json").write_text("{}")
    with pytest.raises(
        ConfigError, match=r"^9 runs in .*: run-0, run-1, run-2, run-3, run-4, run-5, \.\.\.; give"
    ):
        find_run("run", tmp_path)


def test_outputs_are_checked(root, tmp_path, monkeypatch):
    run = find_run("plain", root)
    check_output("--out", None, (".png", ".svg"), run)
    check_output("--out", tmp_path / "a.PNG", (".png", ".svg"), run)
    with pytest.raises(ConfigError, match=r"--out is 'a.jpg', but must end in \.png or \.svg\."):
        check_output("--out", Path("a.jpg"), (".png", ".svg"), run)
    monkeypatch.chdir(run.folder)
    for inside in (
        run.folder / "metrics.csv",
        Path("metrics.csv"),
        run.folder / "checkpoints" / ".." / "metrics.csv",
    ):
        with pytest.raises(ConfigError, match="inside the run's folder"):
            check_output("--csv", inside, (".csv",), run)
