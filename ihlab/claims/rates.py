"""Steps to 90% accuracy as a table, and the learning rate at which a curve needs the fewest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    pass

ACCURACY = 0.9
"""A run has learned once it gets this fraction of its first answers right (one first answer per sequence)."""


def steps_by(steps: "pd.Series[float]", horizon: "float | pd.Series[float]") -> "pd.Series[float]":
    """Return the steps, with inf in place of those beyond `horizon`."""
    return steps.astype(float).where(steps <= horizon, np.inf)


def fastest_rate(table: pd.DataFrame, common: float | None = None) -> float:
    """Return the learning rate with the fewest mean steps. `table` has columns lr, steps (inf: never) and horizon.

    A run that never learns counts as twice the horizon, so a rate at which some seed fails loses to a rate at which
    all learn. In a tie the smallest rate wins. If no run learned at any rate, return `common`, if given.
    """
    never = np.isinf(table["steps"])
    if common is not None and never.all():
        return common
    mean = table["steps"].where(~never, 2 * table["horizon"]).groupby(table["lr"]).mean()
    return float(mean.index[int(mean.to_numpy().argmin())])  # groupby sorts, so in a tie this is the smallest rate


def rate_in_words(lr: float, tuning: pd.DataFrame) -> str:
    """Return a chosen learning rate as text, with a note if it is at an edge of the grid of `tuning`.

    `tuning` has the columns of `fastest_rate`.
    """
    text = f"{lr:g}"
    if np.isinf(tuning["steps"]).all():
        return f"{text} (no rate of the grid learns it within {tuning['horizon'].max():.0f} steps)"
    if lr == tuning["lr"].max():
        return f"{text} (highest of the grid)"
    return f"{text} (lowest of the grid)" if lr == tuning["lr"].min() else text


def count_in_words(steps: Sequence[float]) -> str:
    """Return how many waiting times are finite, as "5 of 6"."""
    return f"{np.isfinite(steps).sum()} of {len(steps)}"


def median_in_words(steps: Sequence[float]) -> str:
    """Return the median of waiting times as text, "never" if it is infinite."""
    middle = float(np.median(steps))
    return f"{middle:.0f}" if np.isfinite(middle) else "never"
