"""Jobs on Ray stop as those in processes do. What a killed worker does to a sweep is in `test_sweep.py`."""

import os
import signal
import subprocess
import sys

import pytest

from ihlab import Run
from ihlab.sweep.ray_pool import in_ray
from tasks import ConfigError
from tests.faults.ways_in import CONFIG
from tests.sweep.test_pool import evaluated_twice, wait_until

LONG = """
import sys
from functools import partial
from pathlib import Path

import ray

from ihlab import ModelConfig, RunConfig
from ihlab.sweep.retry import attempt
from ihlab.sweep.ray_pool import in_ray
from tasks import InductionTask

task = InductionTask(vocab_size=40, length=12)
model = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12)
base = RunConfig(task=task, model=model, steps=10**7, batch_size=4, eval_rows=8, eval_growth=1.0, checkpoints=2)
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)  # one that runs already is used, and left running
job = partial(attempt, Path(sys.argv[1]), "cpu")
try:
    in_ray({seed: base.replace(seed=seed) for seed in range(3)}, job, 2, 0, print)
finally:
    assert ray.is_initialized()
    print("still running")
"""


@pytest.mark.rare
def test_an_interrupt_stops_and_saves_the_runs(tmp_path):
    root = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-c", LONG, str(root)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    # Ray takes minutes to start on a busy machine.
    wait_until(lambda: evaluated_twice(root) == 2 or process.poll() is not None, seconds=400)
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=90)
    assert process.returncode != 0
    assert printed == "still running\n"  # and no run had ended
    started = [Run.open(folder) for folder in root.iterdir()]
    assert len(started) == 2
    assert all(run.checkpoints[-1] > 0 and run.done is None for run in started)


@pytest.mark.slow
def test_a_ray_that_does_not_start_is_a_sentence(monkeypatch):
    def late(**options):
        raise TimeoutError("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", late)
    with pytest.raises(ConfigError, match=r"Ray cannot be started \(The current node timed out during startup\): try"):
        in_ray({0: CONFIG}, None, 1, 0, None)


@pytest.mark.slow
def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"Ray is not installed: pip install 'ray>=2\.50'\."):
        in_ray({}, print, 1, 0, print)
