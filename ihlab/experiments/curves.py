"""What experiments of learning curves share: runs from altered fields, and their metrics as one table."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ihlab.experiments.experiment import Planned
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from ihlab.training.run import Run


def plan(figure: str, base: RunConfig, curves: dict[str, dict[str, object]], seeds: int) -> list[Planned]:
    """Every curve, a set of model fields altered from `base`, with seeds 0 .. seeds - 1."""
    return [
        Planned(curve, base.but(name=f"{figure}-{_slug(curve)}-{seed}", model=base.model.but(**changes), seed=seed))
        for curve, changes in curves.items()
        for seed in range(seeds)
    ]


def _slug(curve: str) -> str:
    return re.sub("[^a-z0-9.]+", "-", curve.lower()).strip("-")


def learning_curve_table(trained: Sequence[tuple[str, "Run"]]) -> pd.DataFrame:
    """The metrics of finished runs as one tidy table: curve, n_params, seed, step, tokens, loss and accuracy."""
    parts = []
    for curve, run in trained:
        assert run.done is not None, f"{run.folder} is not finished"
        columns = run.metrics[["step", "tokens", "train_loss", "eval_loss", "accuracy", "accuracy_first"]]
        facts = {"curve": curve, "d_model": run.config.model.d_model, "n_params": run.done["n_params"]}
        parts.append(columns.assign(**facts, seed=run.config.seed))
    table = pd.concat(parts, ignore_index=True)
    first = ["curve", "d_model", "n_params", "seed"]
    return table[first + [column for column in table.columns if column not in first]]


def final(data: pd.DataFrame, curve: str, column: str = "accuracy_first") -> list[float]:
    """The last value of a column for every seed of a curve."""
    of_curve = data[data["curve"] == curve]
    return of_curve[of_curve["step"] == of_curve["step"].max()][column].tolist()
