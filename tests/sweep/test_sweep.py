"""Sweeps end with every run in the table, whatever happens to single runs and their workers."""

import os
import signal
import sys
import threading
import time

import pandas as pd
import psutil
import pytest
from rich.console import Console

from ihlab import ModelConfig, Run, RunConfig, train
from ihlab.sweep import pool
from ihlab.sweep.grid import Point
from ihlab.sweep.sweep import sweep
from tasks import ConfigError, InductionTask

pytestmark = pytest.mark.slow

TASK = InductionTask(vocab_size=40, length=12)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12, attention="kv_shift")
BASE = RunConfig(
    task=TASK, model=MODEL, steps=400, batch_size=4, warmup=0, eval_rows=8, eval_every=20, eval_growth=0.0,
    checkpoints=21,
)  # fmt: skip


def points(lrs=(0.01,), **changes):
    base = BASE.replace(**changes)
    return [Point({"lr": lr}, base.replace(name=f"lr-{lr:g}", lr=lr)) for lr in lrs]


def quiet_sweep(swept, root, **how):
    with open(os.devnull, "w") as nowhere:
        return sweep(swept, root, device="cpu", jobs=2, console=Console(file=nowhere), **how)


def kill_when_trained(config, root, killed, over):
    """Kill the process that trains a run, once, when the run has a checkpoint past its first.

    Until the sweep is over: on a busy machine Ray takes minutes to start.
    """
    while not killed and not over.is_set():
        folder = config.folder(root)
        if (
            len(list(folder.glob("checkpoints/*.safetensors"))) >= 4
        ):  # two models with their optimisers
            for process in psutil.Process().children(recursive=True):
                if str(folder / ".lock") in {file.path for file in process.open_files()}:
                    killed.append(process.pid)
                    process.send_signal(signal.SIGKILL)
        time.sleep(0.02)


def with_one_killed(swept, victim, root, **how):
    killed, over = [], threading.Event()
    killer = threading.Thread(target=kill_when_trained, args=(victim.config, root, killed, over))
    killer.start()
    try:
        table = quiet_sweep(swept, root, **how)
    finally:
        over.set()
        killer.join()
    assert len(killed) == 1
    return table


def files(root):
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.rare)])
def test_a_sweep_survives_a_killed_worker_and_a_diverging_run(tmp_path, engine):
    swept, root = points((0.01, 0.02, 1e30), clip=None), tmp_path / "runs"
    out = tmp_path / "table.csv"
    table = with_one_killed(swept, swept[0], root, engine=engine, out=out)
    assert table["lr"].tolist() == [0.01, 0.02, 1e30]
    assert table["status"].tolist() == ["done", "done", "diverged"]
    assert pd.read_csv(out)["status"].tolist() == ["done", "done", "diverged"]
    assert "The loss is not finite at step" in table["error"][2]
    resumed = Run.open(swept[0].config.folder(root))
    assert resumed.done["resumed_from"] >= 20
    assert resumed.metrics.equals(train(swept[0].config, tmp_path / "alone").metrics)
    before = files(root)
    again = quiet_sweep(swept, root, engine=engine, out=out)
    assert again.equals(table)
    assert files(root) == before


def test_a_run_that_fails_is_a_row_and_the_next_sweep_goes_on_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "RETRIES", 0)
    swept = points((0.01, 0.02, 0.03))
    in_the_way = swept[1].config.folder(tmp_path)
    in_the_way.write_text("a file")
    table = with_one_killed(swept, swept[0], tmp_path)
    assert table["status"].tolist() == ["failed", "failed", "done"]
    assert table["error"][0].startswith("BrokenProcessPool: ")
    assert table["error"][1].startswith("FileExistsError: ")
    assert "\n" not in table["error"][0]
    assert table["step"][0] >= 20
    assert table[["steps_to_90", "seconds"]].isna().all(axis=1).tolist() == [True, True, False]
    in_the_way.unlink()
    again = quiet_sweep(swept, tmp_path)
    assert again["status"].tolist() == ["done"] * 3
    assert again["error"].tolist() == [""] * 3
    assert Run.open(swept[0].config.folder(tmp_path)).done["resumed_from"] >= 20


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"engine": "rai"}, r"There is no engine 'rai'; did you mean 'ray'\?"),
        ({"jobs": 0}, "jobs is 0, but must be at least 1"),
        ({"device": "quantum"}, "device 'quantum' cannot be used here"),
    ],
)
def test_what_cannot_work_is_refused_before_any_training(tmp_path, how, words):
    with pytest.raises(ConfigError, match=words):
        sweep(points(), tmp_path, console=Console(quiet=True), **how)
    assert not list(tmp_path.iterdir())


def test_no_runs_and_torchrun_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="needs at least one run"):
        quiet_sweep([], tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for engine in ("local", "ray"):
        with pytest.raises(ConfigError, match="leave torchrun out, and use a sweep"):
            quiet_sweep(points(), tmp_path / "runs", engine=engine, out=tmp_path / "table.csv")
    assert not list(tmp_path.iterdir())


def test_a_script_whose_workers_would_begin_it_again_is_told(tmp_path):
    """A worker runs the script's module under this name, so that its call of a sweep would run
    again.
    """
    names = {"__name__": "__mp_main__", "call": lambda: quiet_sweep(points(), tmp_path)}
    with pytest.raises(
        ConfigError, match="reached the call that had started it: make that call under `if __name__"
    ):
        exec(compile("call()", "script.py", "exec"), names)
    assert not list(tmp_path.iterdir())


def test_a_task_of_a_notebook_is_refused_before_any_worker_starts(tmp_path, monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(InductionTask, "__module__", "__main__")
    with pytest.raises(
        ConfigError, match="The task InductionTask is defined in this notebook or session"
    ):
        quiet_sweep(points(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_table_that_must_not_be_replaced_is_noticed_before_any_training(tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n1,2\n")
    for name in ("table.csv", "table.txt"):
        with pytest.raises(
            ConfigError, match=rf"{name}.*(is not the table of a sweep|must end in \.csv)"
        ):
            quiet_sweep(points(), tmp_path / "runs", out=tmp_path / name)
    assert not (tmp_path / "runs").exists()
