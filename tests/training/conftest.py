"""A finished run to compare with or to damage, and a Ctrl-C at a given step."""

import os
import shutil
import signal

import pytest

from ihlab import Run, train


@pytest.fixture(scope="session")
def whole(small, tmp_path_factory):
    """The finished run of `small`. Tests leave it as it is: `finished` is a copy."""
    return train(small, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="session")
def learned(learner, tmp_path_factory):
    """The finished run of `learner`, which tests leave as it is."""
    return train(learner, tmp_path_factory.mktemp("learned"))


@pytest.fixture
def finished(whole, tmp_path):
    """A copy of the finished run of `small` under `tmp_path`, to damage, fork or train on."""
    return Run.open(shutil.copytree(whole.folder, tmp_path / whole.folder.name))


@pytest.fixture
def stop_at(monkeypatch):
    """Return a function of a step. It returns a `report` that asks training to stop at the end of
    that step.
    """
    monkeypatch.setattr("ihlab.training.loop.REPORT_EVERY", 0.0)

    def at(step):
        def interrupt(now, row):
            if now >= step - 1:
                os.kill(os.getpid(), signal.SIGINT)

        return interrupt

    return at
