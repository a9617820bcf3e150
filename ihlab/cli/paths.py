"""Paths that commands read and write: find runs by name, write tables and pictures completely or not at all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ihlab.cli.terminal import console, text
from ihlab.storage.files import require_writable, write_text
from ihlab.training.find_runs import find_folder, listable
from tasks.config import require

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as Interactive

    from ihlab.training.run import Run

PICTURES = (".png", ".svg")
TABLES = (".csv",)
PAGES = (".html",)


def find_run(name: str, root: Path) -> "Run":
    """Open a run by its folder, by its name, or by a prefix of its folder's name; see `ihlab.training.find_runs`.

    Raises `OSError` if its checkpoints cannot be listed.
    """
    from ihlab.training.run import Run

    run = Run.open(find_folder(name, root))
    listable(run.folder / "checkpoints")
    return run


def check_output(
    option: str, path: Path | None, suffixes: Sequence[str], run: "Run | None" = None
) -> None:
    """Check an output file before any work.

    Raises `ConfigError` for a suffix that the command does not write, for a path inside the run's own folder, and for
    a path that is not writable.
    """
    if path is None:
        return
    require(
        path.suffix.lower() in suffixes,
        f"{option} is {str(path)!r}, but must end in {' or '.join(suffixes)}.",
    )
    require(
        run is None or run.folder.resolve() not in path.resolve().parents,
        f"{option} is {str(path)!r}, which is inside the run's folder, where only training writes: give another place.",
    )
    require(not path.is_dir(), f"{option} is {str(path)!r}, which is a folder.")
    require_writable(option, path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Print the path of a file once it is written."""
    yield
    size = path.stat().st_size
    printed = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    console().out(f"{text(path)}: {printed}")


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """Write a table as CSV, with floats in full precision."""
    with writing(path):
        write_text(path, table.to_csv(index=False))


def write_picture(figure: "Figure", path: Path) -> None:
    """Write a figure in the format given by the path's suffix."""
    from ihlab.plots import style

    with writing(path):
        style.write_picture(figure, path)


def write_interactive(figure: "Interactive", path: Path) -> None:
    """Write a figure of `ihlab.plots.interactive` as a page that needs no other file."""
    from ihlab.plots.interactive import write_page

    with writing(path):
        write_page(figure, path)
