"""Lower bounds of the memory that a setting needs, checked against the machine before anything is allocated."""

import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tasks.config import require, shown

_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_BYTES_A_POSITION = 16  # the token and the target, int64 each


def require_memory(what: str, needed: int) -> None:
    """Raise `ConfigError` naming `what` if it needs more bytes than the machine's memory.

    `needed` is a lower bound: a setting that passes may still need too much, but a refused one cannot work.
    """
    has = machine_memory()
    require(
        needed <= has,
        lambda: (
            f"{what} takes at least {in_units(needed)} of memory, but only {in_units(has)} is available."
        ),
    )


def require_rows(task: Any, size: int, rng: np.random.Generator, more: int = 0) -> None:
    """Raise `ConfigError` for an invalid `size` or `rng`, or if `size` sequences and `more` bytes exceed the memory."""
    require(
        isinstance(size, int | np.integer) and size >= 0,
        lambda: f"size is {shown(size)}, but must be a whole number of sequences.",
    )
    require(
        isinstance(rng, np.random.Generator),
        lambda: (
            f"rng is {shown(rng)}, but must be a numpy.random.Generator, such as numpy.random.default_rng(0)."
        ),
    )
    needed = rows_memory(task, size) + more
    require_memory(
        f"A batch of {size} sequences of {task.length} positions ({task.kind}, {task.vocab_size} ids)",
        needed,
    )


def draw_seeds(task: Any, size: int, rng: np.random.Generator, more: int = 0) -> np.ndarray:
    """Draw a 64-bit seed for each of `size` sequences. Raises `ConfigError` as `require_rows` does."""
    require_rows(task, size, rng, more)
    return rng.integers(0, 2**64, size, dtype=np.uint64)


def rows_memory(task: Any, size: int) -> int:
    """Return a lower bound of the bytes that `size` sequences of a task take."""
    return _BYTES_A_POSITION * size * int(task.length)


@lru_cache
def machine_memory() -> int:
    """Return the bytes of memory of this machine or of the process's container."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # the system does not report it
        physical = sys.maxsize
    try:
        return min(physical, int(_CONTAINER.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or no limit
        return physical


def in_units(n_bytes: int) -> str:
    """Return a number of bytes in readable units: 1.5 GiB."""
    power = min(max(n_bytes.bit_length() - 1, 0) // 10, 6)
    return (
        f"{n_bytes / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"
    )
