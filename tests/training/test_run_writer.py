"""A run's folder has one writer: a second one changes nothing, and one whose folder was taken away
stops.
"""

import re
import shutil

import pytest

from ihlab import Run, train
from tasks import ConfigError, TextTask
from tasks.text.prepared import prepare


def test_what_is_being_written_by_another_process_stays(small, tmp_path):
    """A second writer that is refused touches nothing."""
    run = Run.create(small, tmp_path)
    half = run.folder / ".metrics.csv.1.partial"
    with Run.open(run.folder).lock():
        half.write_text("half")
        with pytest.raises(ConfigError, match="Another process is training"):
            train(small, tmp_path)
        assert half.exists()


def test_a_folder_that_is_removed_while_it_is_trained_stops_the_run(small, tmp_path, whole):
    folder = small.folder(tmp_path)
    with pytest.raises(
        ConfigError, match=f"^{folder}, or the file .lock in it, was removed or replaced while"
    ):
        train(small, tmp_path, callback=lambda row: shutil.rmtree(folder))
    assert not folder.exists()
    assert train(small, tmp_path).metrics.equals(whole.metrics)


# Data that a config does not say


@pytest.fixture
def text(small, tmp_path, monkeypatch):
    """A run on the bytes of three files, and a function that writes them."""
    monkeypatch.setenv("IHLAB_CACHE", str(tmp_path / "cache"))

    def write(letters):
        (tmp_path / "corpus").mkdir(exist_ok=True)
        for name, letter in zip("abc", letters, strict=True):
            (tmp_path / "corpus" / name).write_text(letter * 40)
        prepare.cache_clear()  # as a new process
        return task.provenance["corpus_sha256"]

    task = TextTask(corpus=str(tmp_path / "corpus"), vocab_size=256, length=12)
    yield small.replace(task=task, model=small.model.replace(d_vocab=256)), write
    prepare.cache_clear()


def stopped(config, root, **how):
    """Start a run that ends by an exception after its first checkpoint."""

    def fail(record):
        if record["step"] > config.checkpoint_steps()[1]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(config, root, callback=fail, **how)


@pytest.mark.parametrize("members", [1, 2])
def test_a_run_is_resumed_on_the_data_it_began_with_only(text, tmp_path, members, monkeypatch):
    config, write = text
    monkeypatch.setattr("ihlab.training.train.best_stack", lambda config, n, device: n)
    before = write("xyz")
    stopped(config, tmp_path / "stopped", members=members)
    now = write("xyw")
    said = f"its corpus_sha256 is {before[:10]}, but that of the TextTask is now {now[:10]}; bring back the data"
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        train(config, tmp_path / "stopped", members=members)
    assert "\n" not in str(refused.value)
    assert write("xyz") == before
    resumed = train(config, tmp_path / "stopped", members=members)
    whole = train(config, tmp_path / "whole", members=members)
    for run, other in zip(resumed, whole, strict=True):
        assert run.done["resumed_from"] > 0
        assert run.metrics.equals(other.metrics)
