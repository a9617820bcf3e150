"""A device that does not exist is named, and the processes of torchrun are refused before anything
is written.
"""

import pytest

from ihlab import fork, train
from ihlab.training.device import pick_device
from ihlab.training.train import train_ensemble
from tasks import ConfigError


@pytest.mark.parametrize("name", ["quantum", "meta", "cuda:99", "xla:0", "x" * 10**5])
def test_a_device_that_cannot_compute_is_named(name):
    with pytest.raises(ConfigError, match=r"device '.*' cannot be used here") as refused:
        pick_device(name)
    assert len(str(refused.value)) < 500


def test_under_torchrun_nothing_is_trained(small, tmp_path, monkeypatch):
    parent = train(small, tmp_path / "parent")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for work in (
        lambda root: train(small, root),
        lambda root: train(small, root, members=2),
        lambda root: train_ensemble([small], root),
        lambda root: fork(parent, parent.checkpoints[0], root=root),
    ):
        with pytest.raises(
            ConfigError, match=r"leave torchrun out, and use a sweep \(ihlab sweep\)"
        ):
            work(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
