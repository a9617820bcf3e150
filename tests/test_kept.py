"""Kept runs open by name, wherever the package is installed."""

import pytest
import torch

from ihlab import Run, kept
from tasks import ConfigError


@pytest.mark.parametrize("name", kept.names())
def test_a_kept_run_opens_by_name_with_its_models_and_metrics(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run.open(name)
    assert run.folder == kept.path(name)
    assert run.checkpoints[-1] == run.done["steps"] == run.metrics["step"].iloc[-1]
    assert torch.isfinite(run.model()(torch.arange(9)[None])).all()


def test_a_folder_of_the_same_name_goes_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / kept.names()[0]).mkdir()
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        Run.open(kept.names()[0])


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(
        ConfigError, match=r"There is no kept run 'kv-shift-1'; did you mean 'kv-shift-1-layer'\?"
    ):
        kept.path("kv-shift-1")


def test_they_stay_small():
    files = {file for name in kept.names() for file in kept.path(name).rglob("*") if file.is_file()}
    assert sum(file.stat().st_size for file in files) < 6e6
