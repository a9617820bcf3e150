"""The task of induction by two tokens: its rule read back from drawn rows, and what models score that know less."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks.pairs
from tasks import IGNORE, PairTask
from tests.tasks.shown import picture


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis strategy.)"""
    letters = draw(st.integers(2, 5))
    return {
        "letters": letters,
        "vocab_size": 2 * letters + draw(st.integers(0, 9)),
        "length": 3 * letters * (letters - 1) + draw(st.integers(2, 20)),
    }


def score(guess, rows=2000):
    """Accuracy of `guess(triples, a, b, rng)`: the triples are those before the query a b."""
    task, rng = PairTask(), np.random.default_rng(1)
    batch = task.batch(rows, np.random.default_rng(0))
    right = [
        guess([tuple(row[i : i + 3]) for i in range(0, t - 1, 3)], row[t - 1], row[t], rng) == target
        for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
        for t, target in enumerate(targets)
        if target != IGNORE
    ]
    return float(np.mean(right))


def check(row, targets, letters, followers_from):
    """Assert that a row is contexts in any order, then queries, and that the targets are the followers."""
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


def test_the_worked_row_in_the_docstring_obeys_the_rule():
    cells = picture(tasks.pairs.__doc__)
    check([int(token) for token in cells["input"]], [int(target or IGNORE) for target in cells["target"]], 3, 8)


@given(task_fields(), st.integers(0, 2**32))
def test_a_row_is_all_contexts_and_then_queries(fields, seed):
    task = PairTask(**fields)
    batch = task.batch(3, np.random.default_rng(seed))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        check(row, targets, task.letters, task.vocab_size // 2)


def test_letters_followers_and_queries_are_uniform():
    batch = PairTask().batch(20_000, np.random.default_rng(0))
    assert np.bincount(batch.inputs[:, 0], minlength=8) / 20_000 == pytest.approx(np.full(8, 1 / 8), abs=0.01)
    assert np.bincount(batch.inputs[:, 2] - 8, minlength=8) / 20_000 == pytest.approx(np.full(8, 1 / 8), abs=0.01)
    same = (batch.inputs[:, None, 0:36:3] == batch.inputs[:, 36::3, None]) & (
        batch.inputs[:, None, 1:36:3] == batch.inputs[:, 37::3, None]
    )
    assert same.mean(axis=0) == pytest.approx(np.full((12, 12), 1 / 12), abs=0.01)


def test_both_letters_in_order_are_enough_and_the_last_one_is_a_third():
    assert score(lambda triples, a, b, _: next(f for x, y, f in triples if (x, y) == (a, b))) == 1

    def of_last(triples, a, b, rng):
        return rng.choice([f for _, y, f in triples if y == b])

    def most_frequent(triples, a, b, rng):
        return np.bincount([f for _, y, f in triples if y == b]).argmax()

    def latest(triples, a, b, rng):
        return [f for _, y, f in triples if y == b][-1]

    for guess in (of_last, most_frequent, latest):
        assert score(guess) == pytest.approx(1 / 3, abs=0.01)
