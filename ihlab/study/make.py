"""Turn an experiment into a finished folder: train its runs, gather the tables, judge the claims,
draw the figures.
"""

import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from ihlab.study.experiment import Experiment, Planned, Scale, Trained
from ihlab.study.ledger import Folder
from ihlab.sweep.jobs import default_jobs
from ihlab.sweep.pool import has_ended, steps_bar, train_all
from ihlab.training.config import RunConfig

PACKAGES = ("ihlab", "torch", "numpy", "transformer-lens", "matplotlib")
"""Packages whose versions a manifest names."""


def make(
    experiment: Experiment,
    folder: Folder,
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    console: Console | None = None,
    vary: Callable[[list[Planned], int], list[Planned]] = lambda planned, stage: planned,
) -> int:
    """Train the runs of an experiment, showing progress, and publish it. Return the number of runs.

    `vary` may change the runs that the experiment plans for its stage 1 or 2.
    """
    console, jobs, scale = console or Console(), jobs or default_jobs(device), folder.scale
    planned = vary(experiment.runs(scale), 1)
    _train(experiment.name, planned, runs, device, jobs, console)
    if follow := getattr(experiment, "follow", None):
        planned.extend(vary(follow(_open(planned, runs), scale), 2))
        _train(experiment.name, planned, runs, device, jobs, console)
    trained = _open(planned, runs)
    gather_curves = getattr(experiment, "gather_curves", lambda trained, scale: None)
    data = experiment.gather(trained, scale)
    folder.publish(experiment, data, _manifest(trained, scale), gather_curves(trained, scale))
    return len(planned)


def _open(planned: list[Planned], root: Path) -> Trained:
    """Open the finished run of each plan; return it with the name of its cell."""
    from ihlab.training.run import Run

    return [(plan.cell_name, Run.create(plan.config, root)) for plan in planned]


def _train(
    name: str, planned: list[Planned], root: Path, device: str, jobs: int, console: Console
) -> None:
    """Train every distinct config that has not finished, showing progress."""
    missing: dict[str, RunConfig] = {}
    stacked = set()
    for plan in planned:
        digest = plan.config.digest
        if plan.stacked:
            stacked.add(digest)
        if digest not in missing and not has_ended(plan.config, root):
            missing[digest] = plan.config
    configs = list(missing.values())
    if configs:
        with steps_bar(configs, (), console, name) as show:
            train_all(configs, root, device, jobs, show, stacked)


def _manifest(trained: Trained, scale: Scale) -> dict[str, Any]:
    """Return the manifest of a figure: its number of runs, their devices and time, and the package
    versions.
    """
    ended = [run.done for _, run in trained if run.done]
    done = pd.DataFrame(ended, columns=["seconds", "device", "threads", "data"])
    manifest = {
        "scale": scale,
        "runs": len(trained),
        "training_seconds": round(float(done["seconds"].sum()), 1),
        "diverged": [run.folder.name for _, run in trained if run.diverged],
        "devices": sorted(done["device"].astype(str).unique()),
        "threads_per_run": sorted(done["threads"].astype(int).unique().tolist()),
        "python": platform.python_version(),
    }
    for data in done["data"].dropna().head(1):
        manifest["data"] = data
    return {**manifest, "versions": {name: version(name) for name in PACKAGES}}
