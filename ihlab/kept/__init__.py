"""Trained runs that come with the package, so that a model can be opened without training one.

`Run.open("kv-shift-1-layer")` opens one by name. Without optimiser states none can be resumed; a
fork needs `new_moments=True`.
"""

from pathlib import Path

from tasks.config import choose

_HOME = Path(__file__).parent

ALIASES = {"induction-vanilla-2": "vanilla-2-layers", "induction-kv-shift-1": "kv-shift-1-layer"}
"""Names in the suite (`ihlab.suite`) of runs that have another name here."""


def names() -> list[str]:
    """Return the names of the kept runs and their aliases, sorted."""
    return sorted([*ALIASES, *(folder.parent.name for folder in _HOME.glob("*/config.json"))])


def path(name: str) -> Path:
    """Return the run folder of a kept run. Raises `ConfigError` with the nearest name for any
    other.
    """
    choose("kept run", name, names())
    return _HOME / ALIASES.get(name, name)


def proof(name: str) -> str | None:
    """Return the folder with the proof of a kept run, as a path below ihlab/kept; None for a run
    without one.
    """
    folder = path(name) / "proof" if name in names() else _HOME / "none"
    return f"{folder.parent.name}/proof" if folder.exists() else None
