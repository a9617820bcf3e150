"""`reproduce`: train the runs of the named figures, draw the pictures and print a ledger of claims."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

from rich.console import Console

from ihlab.storage.files import require_writable
from ihlab.study.experiment import PUBLISHED, SCALES, Scale, require_scale, scales_of
from ihlab.study.find import NO_FIGURES, chosen, declared
from ihlab.study.ledger import Folder, print_ledger
from ihlab.study.make import make
from ihlab.study.markdown import plain, verdict_counts
from ihlab.study.page import require_own, write_page
from tasks.config import choose, require


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
    mark `by_default`. `jobs` runs are trained at a time: by default one per core, or one on a GPU
    (`ihlab.sweep.jobs.default_jobs`). Finished runs are reused and interrupted runs are resumed.
    With `from_data`, pictures and claims are derived from the stored CSV, without training. With
    `interactive`, each figure is also written as an interactive page. Raises `ConfigError`, before
    any training, for an unknown name, for a scale that an experiment does not have, for an
    experiment that has no such page if `interactive`, and if `runs` or a figure's folder is not
    writable.
    """
    console = console or Console()
    known_scale = cast(Scale, choose("scale", scale, SCALES))
    require(jobs is None or jobs >= 1, f"jobs is {jobs}, but must be at least 1.")
    pairs = list(chain(*(chosen(name, figures) for name in names or _usual(figures))))
    if not names:
        pairs = [pair for pair in pairs if known_scale in scales_of(pair[0])]
    outputs = [(experiment, Folder(home, known_scale)) for experiment, home in pairs]
    for experiment, folder in outputs:
        require_scale(experiment, known_scale)
        drawable = getattr(experiment, "has_interactive", hasattr(experiment, "draw_interactive"))
        require(
            drawable or not interactive,
            f"{experiment.name} has no interactive picture: leave out --interactive.",
        )
        require_own(folder.home / "README.md")
        require_writable("figures", folder.path)
    if not from_data:
        require_writable("runs", runs)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    started, n_runs = time.perf_counter(), 0
    for experiment, folder in outputs:
        if from_data:
            folder.publish(experiment, folder.data(), curves=folder.curves())
        else:
            n_runs += make(experiment, folder, jobs, device, runs, console)
        page = write_page(folder.home, getattr(experiment, "heading", ""))
        say(f"{folder.experiment}: {plain(verdict_counts(folder.claims()))}")
        say(f"Picture, numbers and intervals: {page}")
        if interactive:
            say(f"To explore: {folder.write_interactive(experiment)}")
    if not from_data:
        say(f"{n_runs} runs and {len(outputs)} figures in {time.perf_counter() - started:.0f} s.")
    if known_scale == "smoke":
        say("Smoke scale is a test: no run has more than 12 steps.")
    folders = [folder for _, folder in outputs]
    print_ledger(console, folders)
    return folders


def _usual(figures: Path) -> list[str]:
    """Return the names of the experiments that are made by default."""
    files = declared(figures)
    require(bool(files), NO_FIGURES.format(figures))
    return [name for name, found in files.items() if found.by_default]
