"""How many runs an hour a sweep trains: measured on two workers, projected for more."""

import tempfile
import time
from pathlib import Path

import pandas as pd
from cost_curves import PROJECTED
from paired import figure

from ihlab.recipes.induction import figure1_run
from ihlab.sweep.grid import Point
from ihlab.sweep.sweep import sweep

TABLE = "Runs an hour of a sweep: one layer of KV shifting, d_model 32, 200 steps, eager"
FEW, MANY = 8, 32
WORKERS = 2
MORE_WORKERS = (8, 64)


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the rates of both engines, and the seconds before the first run starts.

    The time between two ends of runs is (seconds of `MANY` runs minus those of `FEW`) divided by
    the further runs. The driver's own processor time for a run bounds the rate of any number of
    workers.
    """
    few, many = (1, 3) if quick else (FEW, MANY)
    rows = []
    for engine in ("local", "ray"):
        seconds, driver = _sweep(engine, few)
        more_seconds, more_driver = _sweep(engine, many)
        apart = (more_seconds - seconds) / (many - few)
        of_driver = max(1e-4, (more_driver - driver) / (many - few))
        start = max(0.0, seconds - few * apart)
        rate = f"{engine}: runs an hour, {WORKERS} workers"
        note = f"{of_driver * 1e3:.0f} ms of the driver a run; {start:.0f} s before the first run"
        rows.append(figure(TABLE, rate, [3600 / apart], "runs", note=note))
        for workers in MORE_WORKERS:
            projected = 3600 / max(apart * WORKERS / workers, of_driver)
            name = f"{engine}: runs an hour, {workers} workers"
            rows.append(figure(TABLE, name, [projected], "runs", note=PROJECTED))
    return pd.DataFrame(rows)


def _sweep(engine: str, n: int) -> tuple[float, float]:
    """Train n runs; return the seconds, and the processor seconds of this process."""
    run = figure1_run()
    model = run.model.replace(d_model=32, n_heads=4, attention="kv_shift")
    run = run.replace(model=model, steps=200, eval_every=100, eval_growth=0.0, checkpoints=2)
    points = [Point({"seed": seed}, run.replace(seed=seed, compile=False)) for seed in range(n)]
    with tempfile.TemporaryDirectory() as root:
        started, used = time.perf_counter(), time.process_time()
        sweep(points, Path(root), engine=engine, jobs=WORKERS, device="cpu")
        return time.perf_counter() - started, time.process_time() - used
