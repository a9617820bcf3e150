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
"""A run has learned once this fraction of its first answers, one for each sequence, is right."""


def steps_table(trained: Sequence[tuple[str, "Run"]]) -> pd.DataFrame:
    """Return a table with one row per run.

    - curve, lr, seed;
    - steps_to_90: the first evaluated step with an accuracy (`RunConfig.stop_at_metric`, by default accuracy_first) of
      0.9 or more; inf: never, also in a run that diverged before;
    - accuracy_first: at the run's last evaluation, which with `RunConfig.stop_at_accuracy` is that step;
    - horizon: the steps that the run could have taken.
    """
    rows = []
    for curve, run in trained:
        metrics, config = run.metrics, run.config
        reached = first_reach(metrics["step"], metrics[config.stop_at_metric], ACCURACY)
        last = round(float(metrics["accuracy_first"].iloc[-1]), 6)
        rows.append((curve, config.lr, config.seed, reached, last, config.steps))
    return pd.DataFrame(rows, columns=["curve", "lr", "seed", "steps_to_90", "accuracy_first", "horizon"])


def steps_by(steps: "pd.Series[float]", horizon: float) -> "pd.Series[float]":
    """Return the steps that are not beyond `horizon`, inf for the others."""
    return steps.astype(float).where(steps <= horizon, np.inf)


def fastest_rate(table: pd.DataFrame, common: float | None = None) -> float:
    """Return the learning rate with the fewest mean steps. `table` has columns lr, steps (inf: never) and horizon.

    A run that never learns counts as twice the horizon, so a rate at which some seed fails loses to one at which all
    learn. The smallest of equal rates wins. If no run learned at any rate, the answer is `common`, if given.
    """
    never = np.isinf(table["steps"])
    if common is not None and never.all():
        return common
    mean = table["steps"].where(~never, 2 * table["horizon"]).groupby(table["lr"]).mean()
    return float(mean.index[int(mean.to_numpy().argmin())])  # groupby sorts: the first least is the smallest rate


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
    """Return how many of some waiting times are finite, as "5 of 6"."""
    return f"{np.isfinite(steps).sum()} of {len(steps)}"


def ratio_in_words(a: Sequence[float], b: Sequence[float], horizon: float) -> str:
    """Return the median ratio of waiting times, a to b, as text; as a bound if infinite times leave it open.

    A pair with a time that was never reached is known up to a bound. Two medians, with all such pairs as small and as
    large as they can be, are equal where those pairs do not matter.
    """
    least, most = stats.median_ratio_bounds(a, b, horizon)
    if math.isclose(least, most):
        return f"{least:.2g}"
    if math.isfinite(most):
        return f"at most {most:.3g}" if least == 0 else f"{least:.3g} to {most:.3g}"
    return f"at least {least:.3g}" if least > 0 else "unknown"
