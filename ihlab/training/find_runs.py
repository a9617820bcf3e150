"""Search for run folders: all under a folder, or one by its name. `Run.open` and every command use
this search.
"""

import os
from difflib import get_close_matches
from pathlib import Path

from ihlab import kept
from ihlab.storage.stored import present
from tasks.config import ConfigError, choose, require

FILES = ("config.json", "metrics.csv", "done.json", "diverged.json", "checkpoints", "lessons")
"""The files of a run folder. A folder without config.json is damaged."""

MOST_LISTED = 6


def find_folder(name: str | Path, root: str | Path) -> Path:
    """Find a run's folder by its path, by the run's name, or by a prefix of the folder's name.

    The path of a run folder takes precedence over a run of `ihlab.kept`, which takes precedence
    over a name or prefix.

    Names are searched in `root`, or in the folder that `name` begins with. An exact name takes
    precedence over a prefix. Raises `ConfigError` if there is no such run (with the nearest name)
    or several (with their names), and `OSError` for a folder that may not be read.
    """
    path, root = Path(name), Path(root)
    for folder in (path, root / path):
        if present(folder / "config.json"):
            return folder
    if str(name) in kept.names():
        return kept.path(str(name))
    within = root if path.parent == Path() else path.parent
    listable(within)
    misspelt = get_close_matches(path.name[:100], kept.names(), n=1)
    names: dict[str, str] = {}
    if within.is_dir() or not misspelt:
        names = {folder.name: folder.name.rpartition("-")[0] for folder in run_folders(within)}
    require(bool(names or misspelt), f"There are no runs in {within}.")
    matching = [folder for folder in names if names[folder] == path.name]
    if not matching:
        matching = [folder for folder in names if folder.startswith(path.name)]
    if not matching:
        choose("run", path.name, {*names.values(), *misspelt})  # raises, with the nearest name
    listed = ", ".join(matching[:MOST_LISTED])
    if len(matching) > MOST_LISTED:
        listed += ", ..."
    require(
        len(matching) == 1,
        f"{len(matching)} runs in {within} are called {path.name!r}: {listed}; give more of its name.",
    )
    return within / matching[0]


def name_to_open(folder: Path) -> str:
    """Return the argument of `Run.open` for a run: its folder's name if that is in `runs`, else its
    path.
    """
    if folder.parent == Path("runs"):
        return folder.name
    return str(folder)


def run_folders(root: str | Path) -> list[Path]:
    """Return the folders of all runs under a folder, sorted by name, whether they can be opened or
    not.

    Raises `ConfigError` if `root` cannot be read.
    """
    try:
        folders = sorted(path for path in Path(root).iterdir() if os.path.isdir(path))
    except OSError as error:
        raise ConfigError(f"There are no runs in {root} ({error.strerror}).") from None
    return [
        path
        for path in folders
        if not os.access(path, os.X_OK) or any(present(path / name) for name in FILES)
    ]


def listable(folder: Path) -> Path:
    """Return the folder; raise `OSError` if it may not be read, because a search would silently
    find nothing in it.
    """
    if folder.is_dir():
        next(folder.iterdir(), None)
    return folder
