"""Paths that commands read and write: runs found by name, tables and pictures written whole or not at all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ihlab import kept
from ihlab.cli.terminal import console, text
from ihlab.files import require_writable, write_atomically, write_text
from ihlab.stored import present
from tasks.config import ConfigError, choose, require

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ihlab.training.run import Run

MOST_LISTED = 6
PICTURES = (".png", ".svg")
TABLES = (".csv",)
PAGES = (".html",)


def find_run(name: str, root: Path) -> "Run":
    """Find a run by its folder, by its name, or by a prefix of its folder's name.

    A folder takes precedence over a run of `ihlab.kept`, and that over a name.

    Names are searched in `root`, or in the folder that `name` begins with. An exact name takes precedence over a
    prefix. Raises `ConfigError` if there is no such run (with the nearest name) or several.
    """
    from ihlab.training.run import run_folders

    given = Path(name)
    for folder in (given, root / given):
        if present(folder / "config.json"):
            return _opened(folder)
    if name in kept.names():
        return _opened(kept.path(name))
    within = listable(root if given.parent == Path() else given.parent)
    folders = [folder.name for folder in run_folders(within)]
    require(bool(folders), f"There are no runs in {within}.")
    names = [folder.rpartition("-")[0] for folder in folders]
    named = [folder for folder, known in zip(folders, names, strict=True) if known == given.name]
    found = named or [folder for folder in folders if folder.startswith(given.name)]
    if not found:
        choose("run", given.name, set(names))  # raises, with the nearest name
    listed = ", ".join(found[:MOST_LISTED]) + (", ..." if len(found) > MOST_LISTED else "")
    require(len(found) == 1, f"{len(found)} runs in {within} are called {given.name!r}: {listed}; write more of one.")
    return _opened(within / found[0])


def _opened(folder: Path) -> "Run":
    from ihlab.training.run import Run

    run = Run.open(folder)
    listable(folder / "checkpoints")
    return run


def listable(folder: Path) -> Path:
    """Return the folder. Raises `OSError` for one that may not be read, in which a search would find nothing."""
    if folder.is_dir():
        next(folder.iterdir(), None)
    return folder


def check_output(option: str, path: Path | None, suffixes: Sequence[str], run: "Run | None" = None) -> None:
    """Check an output file before any work.

    Raises `ConfigError` for a suffix that the command does not write, for a path inside the run's own folder, and for
    one where nothing can be written.
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
    """Print the path of a file once it is written. Raises `ConfigError` if it cannot be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
    size = path.stat().st_size
    printed = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
    console().out(f"{text(path)}: {printed}")  # unlike `print`, ignores a closed pipe


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """Write a table as CSV, floats in full."""
    with writing(path):
        write_text(path, table.to_csv(index=False))


def write_picture(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of its suffix, without dates, so that an unchanged picture is an unchanged file."""
    from ihlab.plots.style import printed

    kind = path.suffix.lower().removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else {"Software": None}

    @printed
    def save(aside: Path) -> None:
        figure.savefig(aside, format=kind, metadata=metadata)

    with writing(path):
        write_atomically(path, save)
