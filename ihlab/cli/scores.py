"""Scores that `ihlab heads` shows of a model: of raw and effective patterns, with the verdict on each head."""

import numpy as np
import pandas as pd
from jaxtyping import Float

from ihlab.interp import head_scores, locate_induction_heads
from ihlab.interp.patterns import pattern_of, probed
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.probe import STRIPE_REPEATS, probe_rows
from ihlab.model.transformer import Transformer
from tasks import Task

PROBE_ROWS = 16


def scored_heads(model: Transformer, task: Task, rows: int, seed: int) -> pd.DataFrame:
    """`head_scores` of raw and effective patterns, with the verdict of `locate_induction_heads` beside each.

    Two rows a head, likeliest induction head first. Both are probed with repeated random tokens; heads are ablated
    on `rows` of the task's held-out rows. Raises what these two raise.
    """
    batch = draw(task, EVAL_SEED, "eval", 0, rows)
    verdicts = locate_induction_heads(model, batch=batch, seed=seed)
    scores = head_scores(model, seed=seed)
    names = ["layer", "head"]
    causal = [name for name in verdicts if name not in scores]
    return verdicts[names + causal].merge(scores, on=names)[[*scores, *causal]]


def mean_patterns(model: Transformer, seed: int) -> dict[str, Float[np.ndarray, "layer head query key"]]:
    """Every head's "raw" and "effective" pattern, averaged over rows of random tokens that stand there twice."""
    cache = probed(model, probe_rows(model, STRIPE_REPEATS, PROBE_ROWS, None, None, seed))
    return {kind: pattern_of(cache, kind).mean(dim=1).cpu().numpy() for kind in ("raw", "effective")}
