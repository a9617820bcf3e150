"""Judge a question on all its sequences: with one head exactly, with several heads by a lower
bound.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from ihlab.certify import ratios, walks
from ihlab.certify.certificate import PROVED, UNKNOWN
from ihlab.certify.sequences import Sequences
from ihlab.certify.tables import ModelTables
from ihlab.certify.walks import PairTables, Question
from ihlab.model.transformer import Transformer

POSITIVE, NO_WALK = 1, 2
"""Signs of `walks.signs`."""


class OneHead:
    """Judges questions on a model of one head. Its bounds are the smallest margins."""

    def __init__(
        self, model: Transformer, alphabet: Int[np.ndarray, " token"], longest: int
    ) -> None:
        self.alphabet = alphabet
        self.tables = lru_cache(maxsize=1)(ModelTables(model, alphabet, longest).of)
        """Returns the tables of a query and a length. Several threads use them: ask once before."""

    def judge(
        self, sequences: Sequences, lengths: Sequence[int], with_margin: set[int]
    ) -> list[dict[str, Any]]:
        """Return a row of the certificate's table for each length that has sequences, with the bound
        at some lengths. No row is refuted yet.
        """
        question = sequences.question
        tables = self.tables(question.query, lengths[-1])
        signs, nearest = walks.signs(tables, question, np.array(lengths))
        rows = []
        for length, sign, near in zip(lengths, signs, nearest, strict=True):
            if sign == NO_WALK:
                continue
            bound = margin = np.nan
            walk = near[:length]
            if length in with_margin:
                bound, margin, walk = walks.smallest_margin(tables, question, length)
            elif sign == POSITIVE:
                walk = near[:0]
            else:
                margin, _ = walks.nearest_rival(tables, question.answer, walk)
            if sign == POSITIVE and bound <= 0:
                bound = 0.0  # the sign is known better than the size
            proved = bool(sign == POSITIVE or bound > 0)
            rows.append(certificate_row(sequences, length, proved, bound, margin, walk))
        return rows


class SeveralHeads(OneHead):
    """Judges questions on a model of several heads. A bound is the sum of each head's least mean,
    or found by branching where this sum is not above 0.
    """

    def judge(
        self, sequences: Sequences, lengths: Sequence[int], with_margin: set[int]
    ) -> list[dict[str, Any]]:
        """Return a row for each length that has sequences. The bound is computed at every length."""
        tables = self.tables(sequences.question.query, lengths[-1])
        rows = (self.row(tables, sequences, length) for length in lengths)
        return [*filter(None, rows)]

    def row(self, tables: PairTables, sequences: Sequences, length: int) -> dict[str, Any] | None:
        """Return the row of a length; None if no sequence has this length."""
        question = sequences.question
        bounds, of_heads = walks.sums_of_heads(tables, question, length)
        bound = float(bounds.min())
        if bound == np.inf:
            return None
        margins = [walks.nearest_rival(tables, question.answer, walk)[0] for walk in of_heads]
        walk, margin = of_heads[int(np.argmin(margins))], min(margins)
        if bound <= 0 < margin:
            walk, margin = self._descend(tables, sequences, walk, margin)
        if bound <= 0 < margin:
            bound, near = self._branch(tables, question, bounds, walk)
            known, _ = walks.nearest_rival(tables, question.answer, near)
            if known < margin:
                walk, margin = near, known
        return certificate_row(sequences, length, bound > 0, bound, margin, walk)

    def _branch(
        self, tables: PairTables, question: Question, bounds: np.ndarray, walk: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the bound after branching for every rival whose bound is not above 0, up to one
        for whom it stays so, and the walk with the least margin against it that was met.
        """
        for rival in np.flatnonzero(bounds <= 0):
            bound, walk = ratios.branched(tables, question, rival, walk)
            if bound <= 0:
                break
            bounds[rival] = bound
        return float(bounds.min()), walk

    def _descend(
        self, tables: PairTables, sequences: Sequences, walk: np.ndarray, margin: float
    ) -> tuple[np.ndarray, float]:
        """Exchange one token of a walk at a time as long as the margin falls. Return the last walk
        and its margin.
        """
        before = np.inf
        while margin < before:
            before = margin
            for number in range(len(walk) - 1):
                for token in range(len(self.alphabet)):
                    near = walk.copy()
                    near[number] = token
                    if sequences.holds(self.alphabet[near]):
                        known, _ = walks.nearest_rival(tables, sequences.answer, near)
                        if known < margin:
                            walk, margin = near, known
        return walk, margin


def problems(model: Transformer, lengths: list[int]) -> list[list[int]]:
    """Return lengths in groups that share their tables. With learned positions, every length is a
    problem of its own. Otherwise the tables of the longest serve all.
    """
    if model.pos_embed is None:
        return [lengths]
    return [[length] for length in lengths]


def certificate_row(
    sequences: Sequences, length: int, proved: bool, bound: float, margin: float, walk: np.ndarray
) -> dict[str, Any]:
    """Return a row of the certificate's table, proved or not yet decided."""
    return {
        "length": length,
        "query": sequences.query,
        "answer": sequences.answer,
        "verdict": PROVED if proved else UNKNOWN,
        "margin": margin,
        "bound": bound,
        "worst": sequences.alphabet[walk].tolist(),
    }
