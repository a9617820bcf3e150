"""A sweep: train the runs of a grid, on this machine or on Ray, and gather them in one table."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from tqdm import tqdm

from ihlab.storage.files import require_writable
from ihlab.storage.stored import DIVERGED, DONE, UNFINISHED
from ihlab.sweep.grid import Point, require_distinct
from ihlab.sweep.jobs import default_jobs
from ihlab.sweep.pool import in_processes, require_importable, steps_bar
from ihlab.sweep.ray_pool import in_ray
from ihlab.sweep.results import as_table, result_row, write_results
from ihlab.sweep.retry import attempt, in_one_line
from tasks.config import choose, require

ENGINES = ("local", "ray")


def sweep(
    points: Sequence[Point],
    root: str | Path = "runs",
    *,
    engine: str = "local",
    jobs: int | None = None,
    device: str = "auto",
    out: Path | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """Train the runs of a sweep and return their table, one row per run (`results.result_row` names
    the columns).

    Runs are ordinary run folders under `root`: finished and diverged runs are not trained again,
    interrupted runs are resumed. If a run diverges or fails, its row says so and the others
    continue; the next sweep tries a failed run again. A run whose worker is killed is retried from
    its last checkpoint in another worker, at most twice; after that it has failed. A run
    that another process trains is left to that process.

    - `points`: from `grid.read_grid`, or made by hand;
    - `engine`: "local", in processes of this machine, or "ray", on this machine or on the cluster
      at RAY_ADDRESS;
    - `jobs`: runs at a time. None: "local" trains one per core (`default_jobs`), or one on a GPU;
      "ray" as many as it has cores for;
    - `device`: as in `train`. On Ray, "cuda" requests one GPU per run;
    - `out`: path of a CSV of the table, written whenever a run ends.

    Raises `ConfigError`, before any training, for no points, two equal runs, an unknown engine,
    numbers out of range, a task that worker processes cannot import, a script that would start
    again in them, a device that is not available (local), Ray that is not installed, an `out` that
    must not or cannot be written, and under `torchrun`.
    """
    from ihlab.training.device import require_one_process

    console, root = console or Console(), Path(root).resolve()
    require(len(points) > 0, "A sweep needs at least one run.")
    require_distinct(points)
    configs = [point.config for point in points]
    if choose("engine", engine, ENGINES) == "local":  # Ray sends its workers the code itself
        require_importable(configs)
    require(jobs is None or jobs >= 1, f"jobs is {jobs}, but must be at least 1.")
    if out is not None:
        require(out.suffix == ".csv", f"out is {str(out)!r}, but must end in .csv.")
        require_writable("out", out.parent)
    require_one_process()
    rows = [result_row(point, root) for point in points]
    todo = {i: configs[i] for i, row in enumerate(rows) if row["status"] not in (DONE, DIVERGED)}
    console.print(
        f"{len(points)} runs, {len(points) - len(todo)} of them ended before.", highlight=False
    )
    started = time.perf_counter()

    def write() -> pd.DataFrame:
        table = as_table(rows)
        if out is not None:
            write_results(table, out)
        return table

    write()
    with steps_bar(configs, set(range(len(points))) - set(todo), console) as show:

        def ended(index: int, future: Future[Any]) -> None:
            killed, steps = future.exception(), configs[index].steps
            error = in_one_line(killed) if killed else future.result()
            rows[index] = row = result_row(points[index], root, error)
            if row["status"] == DONE:
                latest = {name: row[name] for name in ("eval_loss", "accuracy")}
                show((index, steps, latest))
            else:
                show((index, steps, {}))
                line = f"{configs[index].name}: {row['status']}. {row['error']}"
                with tqdm.external_write_mode(file=console.file):  # above the bar
                    console.print(line, highlight=False, markup=False)
            write()

        job = partial(attempt, root, device)
        if engine == "ray":
            in_ray(todo, job, jobs, ended, n_gpus=int(device.startswith("cuda")))
        else:
            jobs = jobs or min(default_jobs(device), len(points))
            in_processes(todo, job, jobs, show, ended)
    for i, row in enumerate(rows):
        if row["status"] == UNFINISHED:  # another process may have finished it meanwhile
            rows[i] = result_row(points[i], root)
    table = write()
    counts = table["status"].value_counts()
    said = ", ".join(counts.astype(str) + " " + counts.index)
    console.print(f"{said}; {time.perf_counter() - started:.0f} s.", highlight=False)
    return table
