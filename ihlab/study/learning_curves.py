"""Learning curves, for several experiments: plan runs that differ in some fields; gather their metrics in a table."""

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ihlab.study.experiment import Planned, Trained
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig, constant_steps
from tasks.config import require

if TYPE_CHECKING:
    from ihlab.training.run import Run

EVAL_GROWTH = 0.1
"""Gap between evaluations as a fraction of the steps done, for experiments with claims about ratios of steps."""


def plan(
    figure: str, run: RunConfig, curves: dict[str, dict[str, object]], seeds: int | range, stacked: bool = False
) -> list[Planned]:
    """Plan the runs of every curve. A curve changes some model fields of `run`. An int N of seeds means 0 to N - 1."""
    return [
        Planned(
            curve,
            run.replace(name=f"{figure}-{slug(curve)}-{seed}", model=run.model.replace(**changes), seed=seed),
            stacked,
        )
        for curve, changes in curves.items()
        for seed in (range(seeds) if isinstance(seeds, int) else seeds)
    ]


def slug(curve: str) -> str:
    """Return a curve's name as part of a run's name: "KV shifting, 1 layer" is "kv-shifting-1-layer"."""
    return re.sub("[^a-z0-9.]+", "-", curve.lower()).strip("-")


def learning_curve_table(
    trained: Trained, at_end: Callable[[str, "Run"], dict[str, float]] | None = None
) -> pd.DataFrame:
    """Gather the metrics of finished runs in one tidy table with one row per evaluation.

    - `horizon`: the last step at the full learning rate. Waiting times end there, because the decay of the rate alone
      raises the accuracy;
    - `rows`: the number of held-out sequences;
    - the columns that `at_end` returns, such as a measurement of the final model, in the last row of each run.

    Raises `ConfigError` for a run that diverged.
    """
    parts = []
    for curve, run in trained:
        config, done = run.config, run.done
        require(
            done is not None,
            f"The run {run.folder} diverged at learning rate {config.lr:g}, but a learning curve needs its end.",
        )
        table = run.metrics[["step", "tokens", "train_loss", "eval_loss", "accuracy", "accuracy_first"]]
        facts = {
            "curve": curve, "d_model": config.model.d_model, "n_params": (done or {})["n_params"], "lr": config.lr,
            "seed": config.seed, "horizon": constant_steps(config), "rows": config.eval_rows,
        }  # fmt: skip
        table = pd.concat([pd.DataFrame(facts, index=table.index), table], axis=1)
        parts.append(table.join(pd.DataFrame([at_end(curve, run)], index=table.index[-1:])) if at_end else table)
    return pd.concat(parts, ignore_index=True)


def final_loss(run: "Run") -> float:
    """Return the held-out loss at the end of training; inf for a run that diverged."""
    last = float(run.metrics["eval_loss"].iloc[-1])
    return last if np.isfinite(last) and not run.diverged else math.inf


def final(data: pd.DataFrame, curve: str, column: str = "accuracy_first") -> list[float]:
    """Return the last value of a column for every seed of a curve."""
    return [float(run[column].iloc[-1]) for _, run in data[data["curve"] == curve].groupby("seed")]


def steps_to(data: pd.DataFrame, curve: str, threshold: float, column: str = "accuracy_first") -> list[float]:
    """Return, for every seed of a curve, the first evaluated step with an accuracy of `threshold`; inf if none.

    The default column is the accuracy at a sequence's first answer. Only steps up to `horizon` count.
    """
    runs = steps_per_run(data[data["curve"] == curve], threshold, column)
    return runs.sort_values("seed")["steps_to_90"].astype(float).tolist()


def steps_per_run(data: pd.DataFrame, threshold: float = 0.9, column: str = "accuracy_first") -> pd.DataFrame:
    """Return the last row of each run with `steps_to_90`: the first evaluated step with an accuracy of `threshold`.

    A run has one seed, one learning rate and one curve. Only steps up to `horizon` count; inf: none.
    """
    by = [name for name in ("kind", "curve", "lr", "seed") if name in data]
    rows = []
    for _, run in data.groupby(by, sort=False):
        counted = run[run["step"] <= run["horizon"]]
        rows.append(run.tail(1).assign(steps_to_90=first_reach(counted["step"], counted[column], threshold)))
    return pd.concat(rows, ignore_index=True)


def crossings(data: pd.DataFrame, curve: str, threshold: float, column: str = "accuracy_first") -> list[float]:
    """Return `steps_to`, interpolated linearly between the evaluation that reaches the threshold and the one before.

    Use this when evaluations are about as far apart as the effect.
    """
    found = []
    counted = data[(data["curve"] == curve) & (data["step"] <= data["horizon"])]
    for _, run in counted.groupby("seed"):
        steps, accuracy = run["step"].to_numpy(dtype=float), run[column].to_numpy(dtype=float)
        above = np.flatnonzero(accuracy >= threshold)
        if not above.size:
            found.append(math.inf)
            continue
        around = slice(max(above[0] - 1, 0), above[0] + 1)
        found.append(float(np.interp(threshold, accuracy[around], steps[around])))
    return found
