"""Learning curves, for several experiments: runs from altered fields, and their metrics as one table."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ihlab.claims import stats
from ihlab.claims.experiment import Planned
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig, constant_steps
from tasks.config import require

if TYPE_CHECKING:
    from ihlab.training.run import Run

EVAL_GROWTH = 0.1
"""Share of the steps done that lies between two evaluations of a curve, where the claims ask about ratios of steps."""


def plan(figure: str, base: RunConfig, curves: dict[str, dict[str, object]], seeds: int | range) -> list[Planned]:
    """Plan the runs of every curve, a set of model fields altered from `base`; a number of seeds counts from 0."""
    return [
        Planned(curve, base.but(name=f"{figure}-{_slug(curve)}-{seed}", model=base.model.but(**changes), seed=seed))
        for curve, changes in curves.items()
        for seed in (range(seeds) if isinstance(seeds, int) else seeds)
    ]


def _slug(curve: str) -> str:
    return re.sub("[^a-z0-9.]+", "-", curve.lower()).strip("-")


def learning_curve_table(trained: Sequence[tuple[str, "Run"]]) -> pd.DataFrame:
    """Gather metrics of finished runs in one tidy table: curve, n_params, lr, seed, step, tokens, loss and accuracy.

    Raises `ConfigError` for a run that diverged.
    """
    parts = []
    for curve, run in trained:
        require(
            run.done is not None,
            f"The run {run.folder} diverged at learning rate {run.config.lr:g}, but a learning curve needs its end.",
        )
        columns = run.metrics[["step", "tokens", "train_loss", "eval_loss", "accuracy", "accuracy_first"]]
        config = run.config
        facts = {"curve": curve, "d_model": config.model.d_model, "n_params": (run.done or {})["n_params"]}
        # The last step for waiting times (learning-rate decay lifts an accuracy by itself), and the evaluation rows.
        more = {"lr": config.lr, "seed": config.seed, "horizon": constant_steps(config), "rows": config.eval_rows}
        parts.append(columns.assign(**facts, **more))
    table = pd.concat(parts, ignore_index=True)
    first = ["curve", "d_model", "n_params", "lr", "seed", "horizon", "rows"]
    return table[first + [column for column in table.columns if column not in first]]


def final(data: pd.DataFrame, curve: str, column: str = "accuracy_first") -> list[float]:
    """Return the last value of a column for every seed of a curve."""
    return [float(run[column].iloc[-1]) for _, run in data[data["curve"] == curve].groupby("seed")]


def steps_to(data: pd.DataFrame, curve: str, threshold: float, column: str = "accuracy_first") -> list[float]:
    """Return for every seed of a curve the first evaluated step with that accuracy; inf if none.

    By default it is the accuracy at a row's first answer. Only steps up to `horizon` count, before the learning rate
    decays.
    """
    return [first_reach(run["step"], run[column], threshold) for run in _before_decay(data, curve)]


def crossings(data: pd.DataFrame, curve: str, threshold: float, column: str = "accuracy_first") -> list[float]:
    """Return `steps_to`, interpolated linearly between that evaluation and the one before it.

    For where evaluations are not far closer together than the steps to be compared.
    """
    found = []
    for run in _before_decay(data, curve):
        steps, accuracy = run["step"].to_numpy(dtype=float), run[column].to_numpy(dtype=float)
        above = np.flatnonzero(accuracy >= threshold)
        first = above[0] if above.size else None
        if first:
            around = [first - 1, first]
            found.append(float(np.interp(threshold, accuracy[around], steps[around])))
        else:
            found.append(math.inf if first is None else float(steps[0]))
    return found


def _before_decay(data: pd.DataFrame, curve: str) -> list[pd.DataFrame]:
    """Return each seed's evaluations up to `horizon`."""
    of_curve = data[(data["curve"] == curve) & (data["step"] <= data["horizon"])]
    return [run for _, run in of_curve.groupby("seed")]


def ratio_of_steps(
    data: pd.DataFrame, curve: str, other: str, threshold: float = 0.9, column: str = "accuracy_first"
) -> stats.Estimate:
    """Ratio of the steps to an accuracy, `curve` / `other`."""
    one, two = (steps_to(data, name, threshold, column) for name in (curve, other))
    return stats.ratio_of_times(one, two, shared_horizon(data, curve, other))


def shared_horizon(data: pd.DataFrame, curve: str, other: str) -> float:
    """Return the step up to which both curves' steps count."""
    return float(data.loc[data["curve"].isin([curve, other]), "horizon"].min())
