"""Steps to 90% accuracy as a table, and the learning rate at which a curve needs the fewest."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ihlab.claims import stats
from ihlab.sweep.results import first_reach

if TYPE_CHECKING:
    from ihlab.training.run import Run

ACCURACY = 0.9
"""A run has learned once it gets this fraction of its first answers right (one first answer per sequence)."""


def steps_table(trained: Sequence[tuple[str, "Run"]]) -> pd.DataFrame:
    """Return a table with one row per run.

    - curve, lr, seed;
    - steps_to_90: the first evaluated step with an accuracy (`RunConfig.stop_at_metric`, by default accuracy_first) of
      0.9 or more; inf if there is none, also because the run diverged;
    - accuracy_first: at the run's last evaluation. With `RunConfig.stop_at_accuracy` this is the step in steps_to_90;
    - horizon: the maximum number of steps of the run.
    """
    rows = []
    for curve, run in trained:
        metrics, config = run.metrics, run.config
        reached = first_reach(metrics["step"], metrics[config.stop_at_metric], ACCURACY)
        last = round(float(metrics["accuracy_first"].iloc[-1]), 6)
        rows.append((curve, config.lr, config.seed, reached, last, config.steps))
    return pd.DataFrame(rows, columns=["curve", "lr", "seed", "steps_to_90", "accuracy_first", "horizon"])


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


def ratio_in_words(a: Sequence[float], b: Sequence[float], horizon: float) -> str:
    """Return the median ratio of waiting times, a / b, as text; as a bound if infinite times leave it open.

    A pair with an infinite time gives only a bound on its ratio. The median is computed twice, with all such ratios as
    small and as large as possible. If both medians are equal, the infinite times do not matter.
    """
    least, most = stats.median_ratio_bounds(a, b, horizon)
    if math.isclose(least, most):
        return f"{least:.2g}"
    if math.isfinite(most):
        return f"at most {most:.3g}" if least == 0 else f"{least:.3g} to {most:.3g}"
    return f"at least {least:.3g}" if least > 0 else "unknown"
