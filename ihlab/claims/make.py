"""From experiments to their finished folders: train what they plan, gather, judge, draw."""

import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from ihlab.claims.experiment import Experiment, Planned, Scale, Trained, TwoStages
from ihlab.claims.ledger import Folder
from ihlab.sweep.jobs import default_jobs
from ihlab.sweep.pool import has_ended, steps_bar, train_all
from ihlab.training.config import RunConfig


def make(
    chosen: Sequence[Experiment],
    folders: Sequence[Folder],
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    console: Console | None = None,
    vary: Callable[[list[Planned], int], list[Planned]] = lambda planned, stage: planned,
) -> int:
    """Train what experiments need, with progress, and publish each in its folder; return the number of their runs.

    All folders have the same scale. `vary` may change the runs that an experiment plans for its stage 1 or 2.
    """
    console, jobs, scale = console or Console(), jobs or default_jobs(device), folders[0].scale
    plans = [vary(experiment.runs(scale), 1) for experiment in chosen]
    _train(plans, runs, device, jobs, console)
    for experiment, planned in zip(chosen, plans, strict=True):
        if isinstance(experiment, TwoStages):
            planned.extend(vary(experiment.follow(_open(planned, runs), scale), 2))
    _train(plans, runs, device, jobs, console)
    for experiment, folder, planned in zip(chosen, folders, plans, strict=True):
        trained = _open(planned, runs)
        folder.publish(experiment, experiment.gather(trained, scale), _manifest(trained, scale))
    return sum(map(len, plans))


def _open(planned: list[Planned], root: Path) -> Trained:
    """Open each planned run, which has ended, with its curve."""
    from ihlab.training.run import Run

    return [(plan.curve, Run.create(plan.config, root)) for plan in planned]


def _train(plans: list[list[Planned]], root: Path, device: str, jobs: int, console: Console) -> None:
    """Train every distinct config of the plans that has not ended, with progress."""
    unique: dict[str, RunConfig] = {plan.config.digest: plan.config for planned in plans for plan in planned}
    configs = [config for config in unique.values() if not has_ended(config, root)]
    stacked = {plan.config.digest for planned in plans for plan in planned if plan.stacked}
    if not configs:
        return
    with steps_bar(configs, (), console) as show:
        train_all(configs, root, device, jobs, show, stacked)


def _manifest(trained: Trained, scale: Scale) -> dict[str, Any]:
    """Return the manifest of a figure: its runs, their seeds, devices and times, and the versions of the packages."""
    done = [run.done or {} for _, run in trained]
    packages = ("ihlab", "torch", "numpy", "transformer-lens", "matplotlib")
    return {
        "scale": scale,
        "runs": [
            {
                "curve": curve,
                "run": run.folder.name,
                "seed": run.config.seed,
                **{key: facts.get(key) for key in ("n_params", "seconds", "tokens_per_second")},
            }
            for (curve, run), facts in zip(trained, done, strict=True)
        ],
        "training_seconds": round(sum(facts.get("seconds", 0) for facts in done), 1),
        "diverged": [run.folder.name for _, run in trained if run.diverged],
        "devices": sorted({str(facts["device"]) for facts in done if facts}),
        "threads_per_run": sorted({int(facts["threads"]) for facts in done if facts}),
        "python": platform.python_version(),
        **({"data": data} if (data := next((facts["data"] for facts in done if "data" in facts), None)) else {}),
        "versions": {name: version(name) for name in packages},
    }
