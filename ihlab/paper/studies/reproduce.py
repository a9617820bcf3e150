"""`reproduce`: train the runs of the named figures, draw the pictures and print a ledger of claims."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.console import Console

from ihlab.files import require_writable
from ihlab.paper.figures import FIGURES
from ihlab.paper.page import require_own, write_results_pages
from ihlab.paper.studies.registry import EXPERIMENTS
from ihlab.study.experiment import SCALES, Scale, require_scale, scales_of
from ihlab.study.ledger import Folder, print_ledger
from ihlab.study.make import make
from ihlab.study.markdown import plain, verdict_counts
from tasks.config import ConfigError, choose, require

NOTEBOOKS = {
    "upcycle": "11_upcycling",
    "llc": "12_learning_coefficients",
    "table2": "15_printed_tables",
    "tables6to13": "15_printed_tables",
}
"""Names of former experiments, with the notebooks that replace them."""


def reproduce(
    names: Sequence[str] = (),
    scale: str = "laptop",
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    figures: Path = Path("figures"),
    from_data: bool = False,
    console: Console | None = None,
    interactive: bool = False,
) -> list[Folder]:
    """Train the runs of the named experiments, draw their figures, check their claims and print the ledger.

    Experiments run one after another. Each writes its figure and updates the pages of results before the next starts.
    The default is the `FIGURES` marked `by_default`, those with the fewest runs first. `jobs` runs are trained at a
    time: by default one per core, or one on a GPU (`ihlab.sweep.jobs.default_jobs`). Finished runs are reused and
    interrupted runs are resumed. With `from_data`, pictures and claims are derived from the stored CSV, without
    training. With `interactive`, each figure is also written as an interactive page. Raises `ConfigError`, before any
    training, for an unknown name, for a scale that an experiment does not have, for an experiment that has no such page
    if `interactive`, and if `runs` or `figures` is not writable.
    """
    console = console or Console()
    known_scale = cast(Scale, choose("scale", scale, SCALES))
    require(jobs is None or jobs >= 1, f"jobs is {jobs}, but must be at least 1.")
    by_default = (name for name, figure in FIGURES.items() if figure.by_default)
    usual = (name for name in by_default if known_scale in scales_of(EXPERIMENTS[name]))
    fewest_runs_first = sorted(usual, key=lambda name: (len(EXPERIMENTS[name].runs(known_scale)), name))
    for name in NOTEBOOKS.keys() - EXPERIMENTS.keys() & set(names):
        raise ConfigError(f"'{name}' is no figure any more: see notebooks/{NOTEBOOKS[name]}.ipynb.")
    chosen = [EXPERIMENTS[choose("experiment", name, EXPERIMENTS)] for name in names or fewest_runs_first]
    for experiment in chosen:
        require_scale(experiment, known_scale)
        drawable = getattr(experiment, "has_interactive", hasattr(experiment, "draw_interactive"))
        require(drawable or not interactive, f"{experiment.name} has no interactive picture: leave out --interactive.")
    folders = [Folder(figures, experiment.name, known_scale) for experiment in chosen]
    require_own([figures / "README.md", *(figures / folder.experiment / "README.md" for folder in folders)])
    for folder in folders:
        require_writable("figures", folder.path)
    if not from_data:
        require_writable("runs", runs)

    def published(folder: Folder) -> None:
        write_results_pages(figures, tuple(EXPERIMENTS))
        console.print(f"{folder.experiment}: {plain(verdict_counts(folder.claims()))}", highlight=False)

    if from_data:
        for experiment, folder in zip(chosen, folders, strict=True):
            data, curves = folder.data(), folder.curves()
            try:
                folder.publish(experiment, data, curves=curves)
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                if isinstance(error, ConfigError) or folder.described:
                    raise
                what = f"{type(error).__name__}: {error}"
                raise ConfigError(
                    f"{folder.path / 'data.csv'} cannot be read as this figure's table ({what})."
                ) from error
    else:
        started = time.perf_counter()
        n_runs = make(chosen, folders, jobs, device, runs, console, published=published)
        took = time.perf_counter() - started
        console.print(f"{n_runs} runs and {len(chosen)} figures in {took:.0f} s.", highlight=False)
    print_ledger(console, folders)
    for experiment, folder in zip(chosen, folders, strict=True) if interactive else ():
        explored = folder.write_interactive(experiment)
        console.print(f"To explore: {explored}", markup=False, highlight=False, soft_wrap=True)
    page = write_results_pages(figures, tuple(EXPERIMENTS))
    console.print(f"Pictures, numbers and intervals: {page}", markup=False, highlight=False, soft_wrap=True)
    return folders
