"""Scores that `ihlab heads` shows of a model: of raw and effective patterns, with the verdict on each head."""

import numpy as np
import pandas as pd
from jaxtyping import Float

from ihlab.interp import head_scores
from ihlab.interp.locate import verdicts
from ihlab.interp.sources import KINDS, HeadModel
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.probe import STRIPE_REPEATS, repeated_batch
from tasks import Batch, Task

PROBE_ROWS = 16


def scored_heads(model: HeadModel, batch: Batch, seed: int, length: int | None = None) -> pd.DataFrame:
    """`head_scores` of raw and effective patterns, with the verdict of `locate_induction_heads` beside each.

    Two rows a head, likeliest induction head first. Both are probed with repeated random tokens; heads are ablated
    on the batch. Raises what these two raise.
    """
    scores = head_scores(model, batch, length=length, seed=seed)
    effective = scores[scores["pattern"] == "effective"].sort_values("prefix_matching", ascending=False, kind="stable")
    names = ["layer", "head"]
    return effective.assign(induction=verdicts(effective))[[*names, "induction"]].merge(scores, on=names)[
        [*scores, "induction"]
    ]


def held_out_batch(task: Task, rows: int) -> Batch:
    """Rows of a task that no training sees."""
    return draw(task, EVAL_SEED, "eval", 0, rows)


def repetition(model: HeadModel, rows: int, seed: int, length: int | None) -> Batch:
    """Rows of random tokens read twice, as a task for a model that has none of ours."""
    return repeated_batch(model.probe_rows(STRIPE_REPEATS, rows, length, None, seed + 1), STRIPE_REPEATS)


def mean_patterns(
    model: HeadModel, seed: int, length: int | None = None
) -> dict[str, Float[np.ndarray, "layer head query key"]]:
    """Every head's "raw" and "effective" pattern, averaged over rows of random tokens that stand there twice."""
    patterns = model.read(model.probe_rows(STRIPE_REPEATS, PROBE_ROWS, length, None, seed)).patterns
    return {kind: patterns[kind].mean(dim=1).cpu().numpy() for kind in KINDS}
