"""Measure how many hops a model follows: its error at each number of hops, and the hop horizon
where it passes 0.1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ihlab.recipes.labels import ATTENTION_LABELS
from ihlab.theory.depth import horizon

if TYPE_CHECKING:
    from ihlab.training.run import Run

SMALL_ERROR = 0.1
"""Largest "small error", and the smallest increase in error that counts as "degrade significantly".
"""


class Cell(NamedTuple):
    """Models that differ only in their seed: `attention` is a label, `n_layers` the number of
    layers.
    """

    attention: str
    n_layers: int

    def __str__(self) -> str:
        return f"{self.attention} with {self.n_layers} layer{'s' * (self.n_layers > 1)}"

    @property
    def variant(self) -> str:
        """Value of `ModelConfig.attention`."""
        labels = list(ATTENTION_LABELS.values())
        return list(ATTENTION_LABELS)[labels.index(self.attention)]

    def by_hand(self) -> int:
        """Return the maximum number of hops that a hand-built model follows."""
        return horizon(self.n_layers, self.variant)


def hop_measures(run: "Run") -> dict[str, float]:
    """Return a run's error at each number of hops, error_0, error_1, ..., and its hop horizon.

    The error is the fraction of wrong answers among those that are letters, as in the original's
    evaluation. It is measured on 100 sequences of each number of hops, without dropout. `hops` and
    `log2_hops` are those of `hop_horizon`.
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
    followed, log2 = hop_horizon(errors[1:])
    return {
        **{f"error_{hops}": error for hops, error in enumerate(errors)},
        "hops": followed,
        "log2_hops": log2,
    }


def by_hops(data: pd.DataFrame) -> pd.DataFrame:
    """Return the errors as one row per run and number of hops, with the columns `hops` and `error`."""
    errors = [column for column in map(str, data) if column.startswith("error_")]
    facts = data.columns.drop([*errors, "hops", "log2_hops"], errors="ignore")
    long = data.melt(facts.tolist(), errors, "hops", "error", ignore_index=False)
    long["hops"] = long["hops"].str.removeprefix("error_").astype(int)
    return long.sort_index(kind="stable", ignore_index=True)  # run by run


def hop_horizon(errors: Sequence[float]) -> tuple[int, float]:
    """Return how many hops a model follows, and log2 of its hop horizon.

    `errors` are the errors at 1, 2, ... hops. A model follows h hops if no error at h or fewer hops
    exceeds `SMALL_ERROR`. The hop horizon `k*` is where the error first exceeds it, interpolated
    linearly in log2 of the hops. If the error at one hop exceeds it, the true `k*` is below 1. If
    no error does, the true `k*` is above the largest number of hops.
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
