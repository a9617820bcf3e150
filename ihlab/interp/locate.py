"""Location of induction heads: in models of this or another library, in a cache, or in any attention patterns."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ihlab.interp.heads import head_scores
from tasks import Batch
from tasks.config import require

PREFIX_LEAST = 0.5
"""An induction head spends most of its attention on prefix matches. Uniform attention scores a third at most, on the
shortest sequence allowed."""

ERRORS_LEAST = 2.0
"""Ablating an induction head raises the task's loss by more than twice its standard error over sequences: about one
chance in forty for a head that does nothing. The size of the rise does not matter: several heads often share a job."""


def locate_induction_heads(
    source: Any,
    tokens: Any = None,
    batch: Batch | None = None,
    seed: int = 0,
    ids: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Rank every head, the likeliest induction head first, with the verdict in the column `induction`.

    `source` is a model, or patterns or a cache with their `tokens`; see `head_scores`. Patterns are
    [layer, head, query, key] with tokens [pos], or [layer, batch, head, query, key] with tokens [batch, pos]. The
    columns are those of `head_scores` for effective patterns, or for raw ones if nothing else is known.

    Heads are ranked by prefix_matching, and are induction heads from `PREFIX_LEAST` on. In a model, their
    fixed_distance must also be below that. With a task's `batch`, loss_rise_mean must exceed `ERRORS_LEAST` of its
    standard errors. Given tokens should be a random sequence, repeated at least once. If all repeats are equally far
    apart, they cannot tell an induction head from one that attends by position. Raises `ConfigError` for a `batch` of a
    single sequence, and as `head_scores` does.
    """
    table = scored_heads(source, batch, ids=ids, seed=seed, tokens=tokens)
    table = table[table["pattern"] == table["pattern"].iloc[-1]]  # effective, where it is known
    return table.drop(columns="pattern").reset_index(drop=True)


def scored_heads(source: Any, batch: Batch | None = None, **probe: Any) -> pd.DataFrame:
    """Return `head_scores` of every kind of pattern, ranked and judged as by `locate_induction_heads`.

    `probe` holds other arguments of `head_scores`.
    """
    require(
        batch is None or len(batch.inputs) >= 2,
        f"The batch has {0 if batch is None else len(batch.inputs)} row, but needs at least 2: a rise of the loss is "
        "held against its standard error over rows.",
    )
    scores = head_scores(source, batch, **probe)
    judged = scores[scores["pattern"] == scores["pattern"].iloc[-1]]
    judged = judged.sort_values("prefix_matching", ascending=False, kind="stable")
    induction = judged["prefix_matching"] >= PREFIX_LEAST
    if "fixed_distance" in judged:
        induction &= judged["fixed_distance"] < PREFIX_LEAST
    if "loss_rise_mean" in judged:
        induction &= judged["loss_rise_mean"] > ERRORS_LEAST * judged["loss_rise_mean_error"]
    names = ["layer", "head"]
    return judged[names].assign(induction=induction).merge(scores, on=names)[[*scores, "induction"]]
