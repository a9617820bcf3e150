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
    possible, hits = set(batch.answers[scored].tolist()), 0.0
    for row in np.flatnonzero(asked.any(axis=1)):
        seen = set[int]()
        columns = (of_row[row].tolist() for of_row in (batch.inputs, batch.answers, asked))
        for token, answer, wanted in zip(*columns, strict=True):
            if token in possible:
                seen.add(token)
            if wanted and answer != token and answer in seen:
                hits += 1 / (len(seen) - (token in seen))
    return float(max(commonest, itself, hits) / asked.sum())
