"""The task of induction by two tokens: its rule read back from drawn rows, and what models score
that know less.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tasks import IGNORE, PairTask


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    letters = draw(st.integers(2, 5))
    return {
        "letters": letters,
        "vocab_size": 2 * letters + draw(st.integers(0, 9)),
        "length": 3 * letters * (letters - 1) + draw(st.integers(2, 20)),
    }


def check(row, targets, letters, followers_from):
    """Assert that a row is contexts in any order, then queries, and that the targets are the
    followers.
    """
    triples = [tuple(row[i : i + 3]) for i in range(0, len(row) - 2, 3)]
    n = letters * (letters - 1)
    table = {(a, b): f for a, b, f in triples[:n]}
    used = {a for a, _ in table}
    assert len(table) == n
    assert len(used) == letters
    assert max(used) < followers_from <= min(table.values())
    assert all(a != b for a, b in table)
    assert len({(b, f) for (_, b), f in table.items()}) == n
    assert all(table[a, b] == f for a, b, f in triples)
    assert all(one != other for one, other in pairwise(row))
    for t, target in enumerate(targets):
        asked = t > 3 * n and t % 3 == 1
        assert target == (table[row[t - 1], row[t]] if asked else IGNORE)


@given(task_fields(), st.integers(0, 2**32))
def test_a_row_is_all_contexts_and_then_queries(fields, seed):
    task = PairTask(**fields)
    batch = task.batch(3, np.random.default_rng(seed))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        check(row, targets, task.letters, task.vocab_size // 2)


def test_letters_followers_and_queries_are_uniform():
    inputs = PairTask().batch(20_000, np.random.default_rng(0)).inputs
    for tokens in (inputs[:, 0], inputs[:, 2] - 8):
        assert chisquare(np.bincount(tokens, minlength=8)).pvalue > 1e-3
    contexts = inputs[:, 0::3] * 16 + inputs[:, 1::3]
    same = contexts[:, None, :12] == contexts[:, 12:, None]
    assert same.mean(axis=0) == pytest.approx(np.full((12, 12), 1 / 12), abs=0.01)


def test_the_last_letter_alone_is_right_in_a_third():
    """A guess among the followers of that letter; both letters in order leave one, as `check` says."""
    rng, right = np.random.default_rng(1), []
    batch = PairTask().batch(2000, np.random.default_rng(0))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        for t in np.flatnonzero(np.array(targets) != IGNORE):
            guesses = [row[i + 1] for i in range(1, t, 3) if row[i] == row[t]]
            right.append(rng.choice(guesses) == targets[t])
    assert np.mean(right) == pytest.approx(1 / 3, abs=0.01)
