"""Timing that holds on a noisy machine: sides take turns, and ratios are of turns next to each other."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd

COLUMNS = ("table", "measured", "median", "min", "max", "unit", "bar", "note")
"""Columns of every benchmark's DataFrame, with one figure per row."""


@dataclass(frozen=True)
class Bar:
    """A limit that a median must keep."""

    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"

    def kept(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def take_turns(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds that each side returns in each round: A B, A B, ..., after one warm-up round."""
    turns = [[side() for side in sides.values()] for _ in range(rounds + 1)][1:]
    return dict(zip(sides, np.array(turns).T, strict=True))


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """`run` as a side: called, it returns the seconds that `run` took."""

    def seconds() -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return seconds


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread, and then on as many as before."""
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
    """One row: the median of the samples, their range, and the bar that the median must keep."""
    return dict(
        zip(
            COLUMNS,
            (table, measured, np.median(samples), np.min(samples), np.max(samples), unit, bar, note),
            strict=True,
        )
    )


def ratio(table: str, measured: str, a: np.ndarray, b: np.ndarray, bar: Bar | None = None) -> dict[str, object]:
    """One row of ratios: turn i of `a` over turn i of `b`. The range is the middle half, as single turns stray far."""
    low, middle, high = np.quantile(a / b, (0.25, 0.5, 0.75))
    return dict(zip(COLUMNS, (table, measured, middle, low, high, "ratio", bar, ""), strict=True))


def missed(figures: pd.DataFrame) -> list[str]:
    """A sentence for each bar that was not kept."""
    return [
        f"{row.table}: {row.measured} has the median {row.median:.4g}, but must be {row.bar}."
        for row in figures.itertuples()
        if row.bar is not None and not row.bar.kept(row.median)
    ]
