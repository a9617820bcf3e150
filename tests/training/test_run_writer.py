"""A run's folder has one writer: what a killed one left goes, and one whose folder was taken away stops."""

import shutil

import pytest

from ihlab import Run, train
from ihlab.training.train import train_ensemble
from tasks import ConfigError


@pytest.fixture
def each_step(monkeypatch):
    monkeypatch.setattr("ihlab.training.loop.REPORT_EVERY", 0.0)


def at(step, act):
    """A report that acts once, after a step."""
    acted = []

    def report(reached, row):
        if reached >= step and not acted:
            acted.append(act())

    return report


def test_what_a_killed_writer_left_is_removed_when_the_run_goes_on(small, tmp_path):
    run = Run.create(small, tmp_path)
    left = [".metrics.csv.1.partial", ".config.json.7.partial", "checkpoints/.step-8.optimizer.safetensors.12.partial"]
    (run.folder / "checkpoints").mkdir()
    for name in left:
        (run.folder / name).write_text("half")
    train(small, tmp_path)
    assert not list(run.folder.rglob("*.partial"))


def test_what_is_being_written_by_another_process_stays(small, tmp_path):
    """A second writer that is refused touches nothing."""
    run = Run.create(small, tmp_path)
    half = run.folder / ".metrics.csv.1.partial"
    with Run.open(run.folder).lock():
        half.write_text("half")
        with pytest.raises(ConfigError, match="Another process is training"):
            train(small, tmp_path)
        assert half.exists()


def test_a_folder_that_is_removed_while_it_is_trained_stops_the_run(small, tmp_path, each_step):
    folder = small.folder(tmp_path)
    with pytest.raises(ConfigError, match=f"^{folder}, or the file .lock in it, was removed or replaced while"):
        train(small, tmp_path, report=at(3, lambda: shutil.rmtree(folder)))
    assert not folder.exists()
    assert train(small, tmp_path).metrics.equals(train(small, tmp_path / "whole").metrics)


@pytest.mark.parametrize("during", ["write_table", "write_done"])
def test_a_folder_that_is_removed_within_a_write_stops_the_run_too(small, tmp_path, monkeypatch, during):
    write, folder = getattr(Run, during), small.folder(tmp_path)

    def removing(run, *arguments):
        write(run, *arguments)
        if during == "write_done" or run.metrics["step"].iloc[-1] >= 5:
            shutil.rmtree(folder)

    monkeypatch.setattr(Run, during, removing)
    with pytest.raises(ConfigError, match="was removed or replaced"):
        train(small, tmp_path)
    assert not folder.exists()


def test_a_second_writer_after_the_lock_was_removed_is_noticed_by_the_first(small, tmp_path, each_step):
    """Whoever removes the lock file lets a second process in; what that one has written is not written over."""
    folder = small.folder(tmp_path)
    second = []

    def let_in():
        (folder / ".lock").unlink()
        second.append(train(small, tmp_path).metrics)

    with pytest.raises(ConfigError, match="was removed or replaced"):
        train(small, tmp_path, report=at(3, let_in))
    run = Run.open(folder)
    assert run.done
    assert run.metrics.equals(second[0])
    assert run.metrics.equals(train(small, tmp_path / "whole").metrics)


def test_an_ensemble_notices_the_folder_of_any_member(small, tmp_path, each_step):
    configs = [small.but(seed=seed) for seed in range(3)]
    gone = configs[1].folder(tmp_path)
    with pytest.raises(ConfigError, match=f"^{gone}, or the file .lock in it, was removed or replaced"):
        train_ensemble(configs, tmp_path, report=at(3, lambda: shutil.rmtree(gone)), stack=3)
    assert not gone.exists()
