"""Many runs at a time: each is the run it would be alone, and all can be stopped and go on."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from ihlab import ModelConfig, Run, RunConfig, train
from ihlab.study.learning_curves import evaluations
from ihlab.sweep.pool import WorkerKilledError, costliest_first, stacks, train_all
from tasks import ConfigError, InductionTask
from tests.forked import session_of

pytestmark = pytest.mark.slow

TASK = InductionTask(vocab_size=40, length=12)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12, attention="kv_shift")
BASE = RunConfig(task=TASK, model=MODEL, steps=10, batch_size=4, eval_rows=8, checkpoints=2)

LONG = """
from pathlib import Path
import sys
from ihlab import ModelConfig, RunConfig
from ihlab.sweep.pool import train_all
from tasks import InductionTask

if __name__ == "__main__":
    task = InductionTask(vocab_size=40, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12)
    base = RunConfig(task=task, model=model, steps=10**7, batch_size=4, eval_rows=8, eval_growth=1.0, checkpoints=2)
    train_all([base, base.replace(steps=4)], Path(sys.argv[1]), "cpu", 2, lambda update: None)
"""


def evaluated_twice(root):
    """How many runs have a second row of metrics."""
    return sum(len(path.read_text().splitlines()) > 2 for path in root.rglob("metrics.csv"))


def wait_until(reached, seconds=300):
    deadline = time.monotonic() + seconds
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.usefixtures("spawned_workers")
def test_runs_trained_together_equal_runs_trained_alone(tmp_path):
    configs = [BASE.replace(seed=seed) for seed in range(3)]
    train(configs[1], tmp_path / "together")  # is not trained again
    updates = []
    train_all(configs, tmp_path / "together", "cpu", 1, updates.append)
    for config in configs:
        together = Run.open(config.folder(tmp_path / "together"))
        assert together.metrics.equals(train(config, tmp_path / "alone").metrics)
    heard = {index: (step, row["step"]) for index, step, row in updates}
    assert heard == {0: (10, 10), 2: (10, 10)}


@pytest.mark.parametrize("stacked", [True, False])
def test_a_run_that_diverges_stops_no_other_and_is_not_trained_again(tmp_path, stacked):
    steady = BASE.replace(clip=None)
    configs = [steady.replace(lr=1e30), steady, steady.replace(batch_size=8, lr=1e30)]
    may_be_stacked = {config.digest for config in configs if stacked}
    train_all(configs, tmp_path, "cpu", 2, lambda update: None, may_be_stacked)
    wild, calm, other = (Run.open(config.folder(tmp_path)) for config in configs)
    assert calm.done
    assert not calm.diverged
    assert all(run.diverged and not run.done for run in (wild, other))
    stamp = (wild.folder / "diverged.json").stat().st_mtime_ns
    train_all(configs, tmp_path, "cpu", 2, lambda update: None, may_be_stacked)
    assert (wild.folder / "diverged.json").stat().st_mtime_ns == stamp
    with pytest.raises(
        ConfigError, match=r"diverged at learning rate 1e\+30, but a learning curve needs its end"
    ):
        evaluations(wild)


def test_stacks_hold_what_differs_as_members_may(monkeypatch):
    """384 values a step, so that 8 members fill 3072. Of at most 2 each, 3 make two stacks. Keys
    stay with configs.
    """
    monkeypatch.setattr("ihlab.training.ensemble.CPU_VALUES", 3072)
    monkeypatch.setattr("ihlab.sweep.pool.LARGEST", 2)
    alike = [BASE.replace(seed=1, name="other"), BASE, BASE.replace(lr=2.0)]
    longer = [BASE.replace(steps=20), BASE.replace(steps=20, init_shift=(0.0, 1.0))]
    configs = dict(zip((9, 7, 5, 2, 4), (*alike, *longer), strict=True))
    assert stacks(configs, "cpu") == [[9, 7], [5], [2, 4]]
    monkeypatch.setattr("ihlab.training.ensemble.CPU_VALUES", 3071)  # seven: not worth it
    assert stacks(configs, "cpu") == [[9], [7], [5], [2], [4]]


def test_the_costliest_goes_first():
    cheap, wide, long = BASE, BASE.replace(model=MODEL.replace(d_model=16)), BASE.replace(steps=30)
    assert costliest_first({3: cheap, 5: wide, 7: long}) == [
        7,
        5,
        3,
    ]  # 3, 10 / 9 and 1 times the cheapest


@pytest.mark.rare
def test_a_killed_parent_leaves_no_worker_and_what_they_trained_is_saved(tmp_path):
    """Neither the one that trains nor the one that waits for a job, whose queue does not end with
    the parent.
    """
    (tmp_path / "long.py").write_text(LONG)
    root = tmp_path / "runs"
    command = [sys.executable, str(tmp_path / "long.py"), str(root)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: list(root.rglob("done.json")) and evaluated_twice(root) == 2)
    assert len(session_of(process.pid)) == 4  # the parent, two workers and the resource tracker
    process.kill()
    process.wait()
    wait_until(lambda: not session_of(process.pid), seconds=10)
    assert session_of(process.pid) == []
    [stopped] = [run for run in map(Run.open, root.iterdir()) if not run.done]
    assert stopped.checkpoints[-1] > stopped.config.first_step


def test_a_run_whose_worker_is_killed_goes_on_and_is_given_up_in_a_sentence(tmp_path, monkeypatch):
    """As the kernel kills when memory is short."""
    whole = train(BASE, tmp_path / "whole")
    monkeypatch.setattr("ihlab.sweep.pool._train", partial(train_and_die, 2))
    train_all([BASE], tmp_path / "killed", "cpu", 1, lambda update: None)
    assert Run.open(BASE.folder(tmp_path / "killed")).metrics.equals(whole.metrics)
    monkeypatch.setattr("ihlab.sweep.pool._train", partial(train_and_die, 3))
    with pytest.raises(
        WorkerKilledError, match=r"trained run was killed 3 times, .* a smaller --jobs"
    ):
        train_all([BASE], tmp_path / "given up", "cpu", 1, lambda update: None)


def train_and_die(times, root, device, stacked, config, report):
    """Train, and be killed in the first so many tries."""
    before = len(list(root.glob("died-*")))
    if before < times:
        (root / f"died-{before}").mkdir(parents=True)
        os.kill(os.getpid(), signal.SIGKILL)
    train(config, root, "cpu", report)
