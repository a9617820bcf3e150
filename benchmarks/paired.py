"""Reliable timing on a noisy machine: sides take turns, and ratios compare adjacent turns."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

COLUMNS = ("table", "measured", "against", "median", "low", "high", "unit", "goal", "note")
"""Columns of every benchmark's DataFrame, which has one number per row. `goal` is the largest
median wanted, or NaN.
"""


def take_turns(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, np.ndarray]:
    """Return the seconds of each side in each round: A B, A B, ..., after one warm-up round."""
    turns = [[side() for side in sides.values()] for _ in range(rounds + 1)][1:]
    return dict(zip(sides, np.array(turns).T, strict=True))


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """Return a function that calls `run` and returns the seconds that it took."""

    def seconds() -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return seconds


def figure(
    table: str,
    measured: str,
    samples: Sequence[float] | np.ndarray,
    unit: str,
    goal: float = math.nan,
    note: str = "",
    against: str = "",
) -> dict[str, object]:
    """Return one row: the median of the starts, each the median of its turns, and the range of the
    starts.

    `samples`: [start, turn], or [turn], where every turn counts as a start.
    """
    starts = np.median(np.reshape(samples, (len(samples), -1)), axis=1)
    numbers = (np.median(starts), np.min(starts), np.max(starts))
    return dict(zip(COLUMNS, (table, measured, against, *numbers, unit, goal, note), strict=True))


def ratio(
    table: str,
    measured: str,
    a: np.ndarray,
    b: np.ndarray,
    goal: float = math.nan,
    against: str = "",
) -> dict[str, object]:
    """Return one row for the ratios a / b of adjacent turns."""
    return figure(table, measured, a / b, "ratio", goal, against=against)


def missed(figures: pd.DataFrame) -> list[str]:
    """Return a sentence for each median above its goal."""
    return [
        f"{row.table}: {row.measured} has the median {row.median:.4g}, but must be at most {row.goal:.4g}."
        for row in figures[figures["median"] > figures["goal"]].itertuples()
    ]
