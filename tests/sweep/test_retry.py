"""One run of a sweep: its error is returned, not raised."""

import threading
import time

from ihlab import Run
from ihlab.sweep import retry
from ihlab.sweep.retry import attempt
from tests.faults import ways_in

CONFIG = ways_in.CONFIG.replace(steps=4, batch_size=2, eval_every=2, checkpoints=2)


def tried(config, root, report=lambda step, row: None):
    return attempt(root, "cpu", config, report)


def test_a_diverging_run_leaves_a_note_in_its_folder_and_is_no_error(tmp_path):
    config = CONFIG.replace(lr=1e30, clip=None, warmup=0)
    assert tried(config, tmp_path) == ""
    assert Run.open(config.folder(tmp_path)).diverged["step"] == 2


def test_any_other_error_is_one_line_and_the_next_attempt_trains_the_run(tmp_path):
    def report(step, row):
        raise OSError("no space\nleft")

    assert tried(CONFIG, tmp_path, report) == "OSError: no space left"
    assert tried(CONFIG, tmp_path) == ""
    assert Run.open(CONFIG.folder(tmp_path)).done


def test_a_lock_that_goes_is_waited_for_and_one_that_stays_leaves_the_run_to_its_holder(
    tmp_path, monkeypatch
):
    run = Run.create(CONFIG, tmp_path)
    monkeypatch.setattr(retry, "PATIENCE", 0.2)
    with run.lock():
        assert tried(CONFIG, tmp_path) == ""
    assert not run.done
    assert not run.has_metrics

    held = threading.Event()

    def hold():
        with run.lock():
            held.set()
            time.sleep(0.5)

    monkeypatch.setattr(retry, "PATIENCE", 60.0)
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    assert tried(CONFIG, tmp_path) == ""
    assert Run.open(run.folder).done
    holder.join()
