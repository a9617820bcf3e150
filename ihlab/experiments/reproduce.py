"""`reproduce`: from names of figures to trained runs, pictures and a ledger of claims."""

import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from ihlab.experiments.basin_map import BasinMap
from ihlab.experiments.elsewhere import Elsewhere
from ihlab.experiments.experiment import METHODS, SCALES, Experiment, Planned, Scale, TwoStages
from ihlab.experiments.figure1a import Figure1a
from ihlab.experiments.figure1b import Figure1b
from ihlab.experiments.figure2 import Figure2
from ihlab.experiments.figure4 import Figure4
from ihlab.experiments.figure7 import Figure7
from ihlab.experiments.figure8 import Figure8
from ihlab.experiments.figure8_law import Figure8Law
from ihlab.experiments.figure9 import Figure9
from ihlab.experiments.figure10 import Figure10
from ihlab.experiments.figure11 import Figure11
from ihlab.experiments.formation import Formation
from ihlab.experiments.initialisation import Initialisation
from ihlab.experiments.ledger import Folder, print_ledger
from ihlab.experiments.mqar import MQAR
from ihlab.experiments.one_more_layer import OneMoreLayer
from ihlab.experiments.results_page import require_own, write_results_page
from ihlab.experiments.robustness import Robustness
from ihlab.experiments.saved_layer import SavedLayer
from ihlab.experiments.shift_halves import ShiftHalves
from ihlab.experiments.table2 import Table2
from ihlab.experiments.table4 import Table4
from ihlab.experiments.table5 import Table5
from ihlab.experiments.table15 import Table15
from ihlab.experiments.tables6to13 import Tables6To13
from ihlab.experiments.text import Text
from ihlab.experiments.zoo import Zoo
from ihlab.files import require_writable
from ihlab.sweep.jobs import default_jobs
from ihlab.sweep.pool import has_ended, steps_bar, train_all
from ihlab.training.config import RunConfig
from tasks.config import choose, require
from tasks.registry import load_plugins

if TYPE_CHECKING:  # drawing from a stored table needs no torch
    from ihlab.training.run import Run

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Figure1a(),
        Figure1b(),
        Figure2(),
        Figure4(),
        Figure8(),
        Figure9(),
        Table5(),
        Formation(),
        MQAR(),
        Table2(),
        Tables6To13(),
        Table4(),
        BasinMap(),
        Robustness(),
        Initialisation(),
        Figure8Law(),
        SavedLayer(),
        ShiftHalves(),
        OneMoreLayer(),
        Text(),
        Figure7(),
        Figure10(),
        Figure11(),
        Elsewhere(),
        Table15(),
        Zoo(),
    )
}
"""Every experiment by its name, in the order of the page of results."""

GROUP = "ihlab.experiments"
"""The entry points that name experiments of installed packages."""

ON_REQUEST = {
    *("formation", "mqar", "table4", "basin_map", "robustness", "initialisation"),
    *("figure8_law", "saved_layer", "shift_halves", "one_more_layer", "text"),
    *("figure4", "figure7", "figure10", "figure11", "elsewhere", "table15", "zoo"),
}
"""Experiments that are made only if named, as are those that others register."""


def register_experiment(experiment: Any) -> Any:
    """Make an experiment known to `reproduce` by its `name`: an object, or a class without arguments.

    Returns its argument, so that it can be used as a decorator. Raises `ConfigError` for an object that lacks a method
    of `Experiment`, which it names, and for a name that another experiment has already.
    """
    made = experiment() if isinstance(experiment, type) else experiment
    name, kind = getattr(made, "name", None), type(made)
    require(isinstance(name, str) and name.isidentifier(), f"{kind.__name__}.name is {name!r}, but must be one word.")
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    require(not missing, f"{kind.__name__} is not an experiment: it has no {', '.join(missing)}.")
    there = type(EXPERIMENTS.get(str(name), made))
    same = (there.__module__, there.__qualname__) == (kind.__module__, kind.__qualname__)
    require(same, f"There is an experiment '{name}' already, {there.__qualname__}: {kind.__name__} needs another name.")
    ON_REQUEST.update({str(name)} - EXPERIMENTS.keys())
    EXPERIMENTS[str(name)] = made
    return experiment


load_plugins(GROUP, register_experiment)


def reproduce(
    names: Sequence[str] = (),
    scale: str = "laptop",
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    figures: Path = Path("figures"),
    from_data: bool = False,
    console: Console | None = None,
) -> list[Folder]:
    """Train what the named experiments need, draw them, check their claims, print the ledger.

    By default all experiments but those `ON_REQUEST`. `jobs` runs are trained at a time, by default one per core, on a
    GPU 1 (`ihlab.sweep.jobs.default_jobs`). Finished runs are reused, interrupted ones resumed. With `from_data`,
    pictures and claims are derived again from the stored CSV, without training. Raises `ConfigError`, before any
    training, for an unknown name or scale, and for `runs` or `figures` to which nothing can be written.
    """
    console = console or Console()
    at = cast(Scale, choose("scale", scale, SCALES))
    require(jobs is None or jobs >= 1, f"jobs is {jobs}, but must be at least 1.")
    usual = [name for name in EXPERIMENTS if name not in ON_REQUEST]
    chosen = [EXPERIMENTS[choose("experiment", name, EXPERIMENTS)] for name in names or usual]
    folders = [Folder(figures, experiment.name, at) for experiment in chosen]
    require_own(figures)
    for folder in folders:
        require_writable("figures", folder.path)
    if not from_data:
        require_writable("runs", runs)
    if from_data:
        for experiment, folder in zip(chosen, folders, strict=True):
            folder.publish(experiment, folder.data())
    else:
        started = time.perf_counter()
        n_runs = make(chosen, folders, jobs, device, runs, console)
        took = time.perf_counter() - started
        console.print(f"{n_runs} runs and {len(chosen)} figures in {took:.0f} s.", highlight=False)
    print_ledger(console, folders)
    page = write_results_page(figures, tuple(EXPERIMENTS))
    console.print(f"Pictures, numbers and intervals: {page}", markup=False, highlight=False, soft_wrap=True)
    return folders


def make(
    chosen: Sequence[Experiment],
    folders: Sequence[Folder],
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    console: Console | None = None,
) -> int:
    """Train what experiments need, with progress, and publish each in its folder; return the number of their runs.

    All folders have the same scale.
    """
    console, jobs, scale = console or Console(), jobs or default_jobs(device), folders[0].scale
    plans = [experiment.runs(scale) for experiment in chosen]
    _train(plans, runs, device, jobs, console)
    for experiment, planned in zip(chosen, plans, strict=True):
        if isinstance(experiment, TwoStages):
            planned.extend(experiment.follow(_open(planned, runs), scale))
    _train(plans, runs, device, jobs, console)
    for experiment, folder, planned in zip(chosen, folders, plans, strict=True):
        trained = _open(planned, runs)
        folder.publish(experiment, experiment.gather(trained, scale), _manifest(trained, scale))
    return sum(map(len, plans))


def _open(planned: list[Planned], root: Path) -> list[tuple[str, "Run"]]:
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


def _manifest(trained: list[tuple[str, "Run"]], scale: Scale) -> dict[str, Any]:
    """Manifest of a figure: its runs, their seeds, devices and times, and the versions of the packages."""
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
