"""Trained runs that come with the package, so that a model can be opened without training one.

`Run.open("kv-shift-1-layer")` opens one by name; without optimiser states, none can be resumed or forked.
"""

from pathlib import Path

from tasks.config import require

_HOME = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the kept runs, sorted."""
    return sorted(folder.parent.name for folder in _HOME.glob("*/config.json"))


def path(name: str) -> Path:
    """Return the run folder of a kept run. Raises `ConfigError` with the known names for any other."""
    require(name in names(), f"There is no kept run '{name}'; the kept runs are {', '.join(names())}.")
    return _HOME / name
