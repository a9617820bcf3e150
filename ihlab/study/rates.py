"""The learning rate at which a curve needs the fewest steps to 90% accuracy; steps and rates in
words.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

ACCURACY = 0.9
"""A run has learned once it gets this fraction of its first answers right (one first answer per
sequence).
"""


def fastest_rate(table: pd.DataFrame) -> float:
    """Return the learning rate with the fewest mean steps.

    `table` has the columns lr, steps_to_90 (inf: never) and horizon.

    A run that never learns counts as twice the horizon, so a rate at which some seed fails loses to
    a rate at which all learn. In a tie the smallest rate wins.
    """
    never = np.isinf(table["steps_to_90"])
    mean = table["steps_to_90"].where(~never, 2 * table["horizon"]).groupby(table["lr"]).mean()
    return float(
        mean.index[int(mean.to_numpy().argmin())]
    )  # groupby sorts, so in a tie this is the smallest rate


def rate_in_words(lr: float, tuning: pd.DataFrame) -> str:
    """Return a chosen learning rate as text, with a note if it is the highest or lowest of
    `tuning`.

    `tuning` has the columns of `fastest_rate`.
    """
    text = f"{lr:g}"
    if np.isinf(tuning["steps_to_90"]).all():
        return f"{text}; no rate tried learns it within {tuning['horizon'].max():.0f} steps"
    if lr == tuning["lr"].max():
        return f"{text}, the highest tried"
    return f"{text}, the lowest tried" if lr == tuning["lr"].min() else text


def count_in_words(steps: Sequence[float]) -> str:
    """Return how many waiting times are finite, as "5 of 6"."""
    return f"{np.isfinite(steps).sum()} of {len(steps)}"


def median_in_words(steps: Sequence[float]) -> str:
    """Return the median of waiting times as text, "never" if it is infinite."""
    middle = float(np.median(steps))
    return f"{middle:.0f}" if np.isfinite(middle) else "never"
