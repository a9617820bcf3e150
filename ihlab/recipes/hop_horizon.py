"""Measure how many hops a model follows: its error at each number of hops, and the hop horizon (error above 0.1)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ihlab.recipes.labels import ATTENTION_LABELS
from ihlab.study import stats
from ihlab.theory.depth import by_doubling, horizon

if TYPE_CHECKING:
    from ihlab.training.run import Run

SMALL_ERROR = 0.1
"""Largest "small error", and the smallest increase in error that counts as "degrade significantly"."""


class Cell(NamedTuple):
    """Models that differ only in their seed: `attention` is a label, `n_layers` the number of layers."""

    attention: str
    n_layers: int

    def __str__(self) -> str:
        return f"{self.attention} with {self.n_layers} layer{'s' * (self.n_layers > 1)}"

    @property
    def variant(self) -> str:
        """Value of `ModelConfig.attention`."""
        return next(variant for variant, label in ATTENTION_LABELS.items() if label == self.attention)

    def by_hand(self) -> int:
        """Return the maximum number of hops that a hand-built model follows."""
        return horizon(self.n_layers, self.variant)

    def by_pointers(self) -> int:
        """Return the maximum number of hops that a hand-built model follows with pointers alone."""
        return by_doubling(self.n_layers, self.variant)

    def of(self, models: pd.DataFrame) -> pd.DataFrame:
        """Return the cell's rows of `hop_horizons`, sorted by seed."""
        mine = (models["attention"] == self.attention) & (models["n_layers"] == self.n_layers)
        return models[mine].sort_values("seed")


def hop_table(run: "Run") -> pd.DataFrame:
    """Return a run's error at each number of hops: attention, n_layers, seed, hops, error.

    The error is the fraction of wrong answers among those that are letters, as in the original's evaluation. It is
    measured on 100 sequences of each number of hops, without dropout.
    """
    import torch

    from ihlab.measure.batches import EVAL_SEED
    from ihlab.measure.gathered import evaluation_batch
    from ihlab.measure.metrics import held_out
    from tasks import MultiHopTask

    task, model, device = run.config.task, run.model(), torch.device("cpu")
    assert isinstance(task, MultiHopTask)
    errors = []
    for hops in range(task.max_hops + 1):
        batch = task.batch_of(hops, 100, np.random.default_rng(EVAL_SEED))
        with torch.no_grad():
            errors.append(1 - held_out(model, [evaluation_batch(batch, device)])["accuracy"])
    facts = {"attention": ATTENTION_LABELS[model.cfg.attention], "n_layers": model.cfg.n_layers}
    return pd.DataFrame({**facts, "seed": run.config.seed, "hops": range(len(errors)), "error": errors})


def hop_horizon(errors: Sequence[float]) -> tuple[int, float]:
    """Return how many hops a model follows, and log2 of its hop horizon.

    `errors` are the errors at 1, 2, ... hops. A model follows h hops if no error at h or fewer hops exceeds
    `SMALL_ERROR`. The hop horizon `k*` is where the error first exceeds it, interpolated linearly in log2 of the hops.
    If the error at one hop exceeds it, the true `k*` is below 1. If no error does, the true `k*` is above the largest
    number of hops.
    """
    error = np.asarray(errors, dtype=float)
    log2 = np.log2(np.arange(1, len(error) + 1))
    followed = int(np.cumprod(error <= SMALL_ERROR).sum())
    if followed == len(error):
        return followed, float(log2[-1])
    if followed == 0:
        return followed, 0.0
    around = [followed - 1, followed]
    return followed, float(np.interp(SMALL_ERROR, error[around], log2[around]))


def hop_horizons(data: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model: attention, n_layers, seed, hops and log2_hops (`hop_horizon`)."""
    rows, by = [], ["attention", "n_layers", "seed"]
    for model, curve in data[data["hops"] > 0].sort_values("hops").groupby(by):
        rows.append([*model, *hop_horizon(curve["error"].tolist())])
    return pd.DataFrame(rows, columns=[*by, "hops", "log2_hops"])


def horizon_table(data: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell: the hops of hand-built models, the hops that each model follows, and the median k*.

    Columns: attention, n_layers, models (their number), by_hand, pointers, hops (of each model, sorted), k_star, and
    low and high, the ends of the interval that inverts the sign test (`ihlab.study.stats.paired`; with five models,
    at 93.75%). A k* equal to the largest number of hops in the sequences is a lower bound.
    """
    models, rows = hop_horizons(data), []
    for cell in dict.fromkeys(map(Cell, data["attention"], data["n_layers"])):
        mine = cell.of(models)
        median = stats.paired((2 ** mine["log2_hops"]).tolist(), [0.0] * len(mine))
        known = {"models": len(mine), "by_hand": cell.by_hand(), "pointers": cell.by_pointers()}
        k_star = {"k_star": median.value, "low": median.low, "high": median.high}
        rows.append({**cell._asdict(), **known, "hops": " ".join(map(str, sorted(mine["hops"]))), **k_star})
    return pd.DataFrame(rows)
