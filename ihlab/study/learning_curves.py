"""Learning curves: the evaluations of a run, and the step at which it has learned."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ihlab.study.rates import ACCURACY
from ihlab.sweep.results import first_reach
from ihlab.training.config import constant_steps
from tasks.config import require

if TYPE_CHECKING:
    from ihlab.training.run import Run

EVAL_GROWTH = 0.1
"""Gap between evaluations as a fraction of the steps done, for experiments with claims about ratios
of steps.
"""


def evaluations(run: "Run") -> pd.DataFrame:
    """Return a row for each evaluation of a run. Raises `ConfigError` for a run that diverged."""
    require(
        run.done is not None,
        f"The run {run.folder} diverged at learning rate {run.config.lr:g}, but a learning curve needs its end.",
    )
    return run.metrics[["step", "tokens", "train_loss", "eval_loss", "accuracy", "accuracy_first"]]


def learning(run: "Run", column: str = "accuracy_first") -> dict[str, Any]:
    """Return the step at which a column of a run's metrics reaches 90%, and its value at the end of
    training.

    - horizon: the last step at the full learning rate. Waiting times end there, because the decay
      of the rate alone raises the accuracy;
    - steps_to_90: the first evaluated step up to `horizon` with 90% accuracy; inf: none;
    - final: the last value of the column;
    - n_params, rows: the number of parameters, and of held-out sequences.
    """
    metrics, horizon = run.metrics, constant_steps(run.config)
    counted = metrics[metrics["step"] <= horizon]
    return {
        "horizon": horizon,
        "n_params": (run.done or {}).get("n_params"),
        "rows": run.config.eval_rows,
        "steps_to_90": first_reach(counted["step"], counted[column], ACCURACY),
        "final": float(metrics[column].iloc[-1]),
    }


def crossing(metrics: pd.DataFrame, horizon: int, column: str) -> float:
    """Return the step, up to `horizon`, of 90% accuracy, interpolated linearly between evaluations;
    inf: none.

    Use this when evaluations are about as far apart as the effect.
    """
    counted = metrics[metrics["step"] <= horizon]
    steps, accuracy = (counted[name].to_numpy(dtype=float) for name in ("step", column))
    reached = np.flatnonzero(accuracy >= ACCURACY)
    if not reached.size:
        return math.inf
    around = slice(max(reached[0] - 1, 0), reached[0] + 1)
    return float(np.interp(ACCURACY, accuracy[around], steps[around]))


def final_loss(run: "Run") -> float:
    """Return the held-out loss at the end of training; inf for a run that diverged."""
    last = float(run.metrics["eval_loss"].iloc[-1])
    return last if np.isfinite(last) and not run.diverged else math.inf
