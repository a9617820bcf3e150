"""The accuracy of guessing, a baseline that a model's accuracy must exceed to mean anything."""

import math

import numpy as np

from tasks import IGNORE, Batch


def guess_of(batch: Batch) -> float:
    """Return the accuracy of the better of two guesses on a batch; NaN without answers.

    One guess is always the commonest answer. The other is uniform among the tokens of the sequence so far that are
    an answer somewhere in the batch, except the token at the scored position itself.
    """
    scored = batch.answers != IGNORE
    if not scored.any():
        return math.nan
    counts = np.bincount(batch.answers[scored])
    possible, hits = np.flatnonzero(counts), 0.0
    for tokens, answers in zip(batch.inputs, batch.answers, strict=True):
        positions = np.flatnonzero(answers != IGNORE)
        distinct, first = np.unique(tokens, return_index=True)
        places = np.sort(first[np.isin(distinct, possible)])
        candidates = np.searchsorted(places, positions, side="right") - np.isin(tokens[positions], possible)
        seen_from = np.full(max(tokens.max(), possible[-1]) + 1, len(tokens))
        seen_from[distinct] = first
        right = (seen_from[answers[positions]] <= positions) & (answers[positions] != tokens[positions])
        hits += (right / np.maximum(candidates, 1)).sum()
    return float(max(hits, counts.max()) / scored.sum())
