"""Arithmetic modulo a prime, against integers without a modulus and the exact law of the results."""

import random
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

import tasks.mano
from tasks import IGNORE, ManoTask
from tests.tasks.deep import mano_answers, mano_row
from tests.tasks.shown import picture


def test_the_worked_row_in_the_docstring_obeys_the_rule():
    task, cells = ManoTask(length=16), picture(tasks.mano.__doc__)
    words = task.words(np.arange(14))
    found = mano_answers(task, [words.index(word) for word in cells["input"]])
    assert [(t, int(target)) for t, target in enumerate(cells["target"]) if target] == [(t, y) for t, y, _ in found]


@given(st.sampled_from([2, 3, 7, 23]), st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**32))
def test_answers_are_the_results_of_the_expressions(modulus, most, more, seed):
    task = ManoTask(modulus=modulus, max_operations=most, vocab_size=modulus + 4 + most, length=2 * most + 3 + more)
    batch = task.batch(4, np.random.default_rng(seed))
    rows = (batch.inputs.tolist(), batch.targets.tolist(), batch.groups["operations"].tolist())
    for tokens, targets, operations in zip(*rows, strict=True):
        found = list(mano_answers(task, tokens))
        assert found == [(t, y, operations[t]) for t, y in enumerate(targets) if y != IGNORE]
        assert found
        assert sum(operations) == sum(n for *_, n in found)
        assert all(tokens[t + 1] == y for t, y, _ in found if t + 1 < task.length)


def test_expressions_are_drawn_like_those_of_plain_python():
    """The first two operations, and at which position the second one is."""
    task, rng, n = ManoTask(modulus=2, max_operations=3, vocab_size=9, length=9), random.Random(0), 8000
    counts = {}
    for side, rows in enumerate(
        (task.batch(n, np.random.default_rng(0)).inputs.tolist(), [mano_row(task, rng)[0] for _ in range(n)])
    ):
        for row in rows:
            at = [(t, token) for t, token in enumerate(row[1:8]) if 2 <= token < 5][:2]
            counts.setdefault((row[0], *at), [0, 0])[side] += 1
    assert len(counts) > 40
    assert chi2_contingency(np.array([*counts.values()]).T).pvalue > 1e-3


@cache
def law(modulus, n):
    """The probability of each result of an expression of n operations."""
    if n == 0:
        return np.full(modulus, 1 / modulus)
    of_results = np.zeros(modulus)
    x, y = np.indices((modulus, modulus))
    for first in range(n):
        both = np.outer(law(modulus, first), law(modulus, n - 1 - first)) / (3 * n)
        for results in (x + y, x - y, x * y):
            np.add.at(of_results, results % modulus, both)
    return of_results


def test_results_follow_their_law_which_gives_the_guessing_floor_of_the_docstring():
    laws = np.array([law(7, n) for n in (1, 2, 3)])
    assert laws.argmax(axis=1).tolist() == [0, 0, 0]
    floor, entropy = laws[:, 0].mean(), -(laws * np.log(laws)).sum(axis=1).mean()
    assert f"right in {floor:.3f} of" in ManoTask.__doc__
    assert f"is {entropy:.3f}" in ManoTask.__doc__
    rows = ManoTask(length=9).batch(20_000, np.random.default_rng(0))  # 9 positions: one whole expression of any size
    first = rows.targets[np.arange(len(rows.targets)), (rows.targets != IGNORE).argmax(axis=1)]
    for n in (1, 2, 3):
        counts = np.bincount(first[rows.inputs[:, 0] == 10 + n], minlength=7)
        assert chisquare(counts, counts.sum() * law(7, n)).pvalue > 1e-3
