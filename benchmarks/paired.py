"""Reliable timing on a noisy machine: sides take turns, and ratios compare adjacent turns."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd

COLUMNS = ("table", "measured", "median", "min", "max", "unit", "bar", "note")
"""Columns of every benchmark's DataFrame, which has one figure per row."""


@dataclass(frozen=True)
class Bar:
    """A limit for a median."""

    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"

    def kept(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def take_turns(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, np.ndarray]:
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, and restore the number of threads afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def figure(
    table: str, measured: str, samples: Sequence[float] | np.ndarray, unit: str, bar: Bar | None = None, note: str = ""
) -> dict[str, object]:
    """Return one row: the median of the samples, their range, and the median's limit."""
    return dict(
        zip(
            COLUMNS,
            (table, measured, np.median(samples), np.min(samples), np.max(samples), unit, bar, note),
            strict=True,
        )
    )


def ratio(table: str, measured: str, a: np.ndarray, b: np.ndarray, bar: Bar | None = None) -> dict[str, object]:
    """Return one row of ratios a[i] / b[i] of turns. The range is the middle half, since single turns vary a lot."""
    low, middle, high = np.quantile(a / b, (0.25, 0.5, 0.75))
    return dict(zip(COLUMNS, (table, measured, middle, low, high, "ratio", bar, ""), strict=True))


def missed(figures: pd.DataFrame) -> list[str]:
    """Return a sentence for each limit that was exceeded."""
    return [
        f"{row.table}: {row.measured} has the median {row.median:.4g}, but must be {row.bar}."
        for row in figures.itertuples()
        if row.bar is not None and not row.bar.kept(row.median)
    ]
