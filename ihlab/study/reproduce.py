"""`reproduce`: train the runs of the named figures, draw the pictures and print a ledger of claims."""

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import cast

from rich.console import Console

from ihlab.storage.files import require_writable
from ihlab.study.experiment import PUBLISHED, SCALES, Experiment, Scale, require_scale, scales_of
from ihlab.study.find import NO_FIGURES, chosen, declared
from ihlab.study.ledger import Folder, print_ledger
from ihlab.study.make import make
from ihlab.study.markdown import plain, verdict_counts
from ihlab.study.page import require_own, write_page
from tasks.config import ConfigError, choose, require


def reproduce(
    names: Sequence[str] = (),
    scale: str = PUBLISHED,
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    figures: Path = Path("figures"),
    from_data: bool = False,
    console: Console | None = None,
    interactive: bool = False,
) -> list[Folder]:
    """Train the runs of the named experiments, draw their figures, check their claims and print the
    ledger.

    Experiments run one after another. Each writes its figure and its page before the next starts. A
    name is one of `ihlab.study.find.chosen`. The default are the figures that their study files
    mark `by_default`, those with the fewest runs first. `jobs` runs are trained at a time: by
    default one per core, or one on a GPU (`ihlab.sweep.jobs.default_jobs`). Finished runs are
    reused and interrupted runs are resumed. With `from_data`, pictures and claims are derived from
    the stored CSV, without training. With `interactive`, each figure is also written as an
    interactive page. Raises `ConfigError`, before any training, for an unknown name, for a scale
    that an experiment does not have, for an experiment that has no such page if `interactive`, and
    if `runs` or a figure's folder is not writable.
    """
    console = console or Console()
    known_scale = cast(Scale, choose("scale", scale, SCALES))
    require(jobs is None or jobs >= 1, f"jobs is {jobs}, but must be at least 1.")
    pairs = list(chain(*(chosen(name, figures) for name in names)))
    if not names:
        pairs = _usual(figures, known_scale)
    experiments, folders = [], []
    for experiment, home in pairs:
        folder = Folder(home, known_scale)
        experiments.append(experiment)
        folders.append(folder)
        require_scale(experiment, known_scale)
        drawable = getattr(experiment, "has_interactive", hasattr(experiment, "draw_interactive"))
        require(
            drawable or not interactive,
            f"{experiment.name} has no interactive picture: leave out --interactive.",
        )
        require_own(home / "README.md")
        require_writable("figures", folder.path)
    if not from_data:
        require_writable("runs", runs)

    started, n_runs = time.perf_counter(), 0
    for experiment, folder in zip(experiments, folders, strict=True):
        if from_data:
            _publish_again(experiment, folder)
        else:
            n_runs += make(experiment, folder, jobs, device, runs, console)
        page = write_page(folder.home, getattr(experiment, "heading", ""))
        counts = plain(verdict_counts(folder.claims()))
        console.print(f"{folder.experiment}: {counts}", highlight=False)
        console.print(
            f"Picture, numbers and intervals: {page}", markup=False, highlight=False, soft_wrap=True
        )
    if not from_data:
        took = time.perf_counter() - started
        console.print(
            f"{n_runs} runs and {len(experiments)} figures in {took:.0f} s.", highlight=False
        )
    print_ledger(console, folders)
    if interactive:
        for experiment, folder in zip(experiments, folders, strict=True):
            explored = folder.write_interactive(experiment)
            console.print(f"To explore: {explored}", markup=False, highlight=False, soft_wrap=True)
    return folders


def _usual(figures: Path, scale: Scale) -> list[tuple[Experiment, Path]]:
    """Return the experiments that are made by default, those with the fewest runs first."""
    files = declared(figures)
    require(bool(files), NO_FIGURES.format(figures))
    usual = []
    for name, found in files.items():
        if found.by_default:
            [(experiment, home)] = chosen(name, figures)
            if scale in scales_of(experiment):
                usual.append((len(experiment.runs(scale)), name, experiment, home))
    return [(experiment, home) for _, _, experiment, home in sorted(usual)]


def _publish_again(experiment: Experiment, folder: Folder) -> None:
    """Publish a figure from its stored tables. Raises `ConfigError` for a table that is not the
    figure's.
    """
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
