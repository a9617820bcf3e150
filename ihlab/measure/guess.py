"""The accuracy of guessing, a baseline that a model's accuracy must exceed to mean anything."""

import math

import numpy as np
from jaxtyping import Bool

from tasks import IGNORE, Batch


def guess_of(batch: Batch, counted: Bool[np.ndarray, "batch pos"] | None = None) -> float:
    """Return the accuracy of the best of three guesses on a batch; NaN without answers.

    One guess is always the commonest answer. One is the token at the scored position itself: two
    hops often lead back to it. One is uniform among the tokens of the sequence so far that are an
    answer somewhere in the batch, except the token at the scored position. `counted`: the accuracy
    is that of these answers; by default all.
    """
    scored = batch.answers != IGNORE
    asked = scored if counted is None else scored & counted
    if not asked.any():
        return math.nan
    commonest = np.bincount(batch.answers[asked]).max()
    itself = (batch.answers == batch.inputs)[asked].sum()
    possible, hits = np.unique(batch.answers[scored]), 0.0
    for tokens, answers, wanted in zip(batch.inputs, batch.answers, asked, strict=True):
        positions = np.flatnonzero(wanted)
        distinct, first = np.unique(tokens, return_index=True)
        places = np.sort(first[np.isin(distinct, possible)])
        candidates = np.searchsorted(places, positions, side="right") - np.isin(
            tokens[positions], possible
        )
        seen_from = np.full(max(tokens.max(), possible[-1]) + 1, len(tokens))
        seen_from[distinct] = first
        right = (seen_from[answers[positions]] <= positions) & (
            answers[positions] != tokens[positions]
        )
        hits += (right / np.maximum(candidates, 1)).sum()
    return float(max(commonest, itself, hits) / asked.sum())
