"""The checker task: its rule read back from drawn rows, and what rules score that cannot check a
claim.
"""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import IGNORE, CheckerTask
from tasks.checker import ASK, FALSE, NO, RECALL, TRUE, YES

ASKED = ("second", "first")


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    length = 4 * draw(st.integers(2, 10))
    asked = draw(st.sampled_from(ASKED))
    return {
        "length": length,
        "vocab_size": length // 2 + 3 + draw(st.integers(0, 20)),
        "asked": asked,
    }


def questions(row, targets):
    """The second half of a row: (position of the answer, the two tokens, target)."""
    half = len(row) // 2
    return [(t, row[t - 1], row[t], targets[t]) for t in range(half + 1, len(row), 2)]


def check(row, targets, kinds, asked):
    """Assert that a row obeys the rule."""
    half = len(row) // 2
    body = row[:half]
    pairs = list(zip(body[::2], body[1::2], strict=True))
    assert len(set(body)) == half
    assert min(body) > max(YES, NO, ASK)
    own, other, step = (1, 0, -1) if asked == "second" else (0, 1, 1)
    found = []
    for t, first, second, target in questions(row, targets):
        (place,) = (i for i, pair in enumerate(pairs) if pair[own] == second)
        right, wrong = pairs[place][other], pairs[(place + step) % len(pairs)][other]
        expected = {RECALL: (ASK, right), TRUE: (right, YES), FALSE: (wrong, NO)}[kinds[t]]
        assert (first, target) == expected
        found.append(place)
    assert sorted(found) == list(range(len(pairs)))
    asked_at = set(range(half + 1, len(row), 2))
    assert all(targets[t] == IGNORE and kinds[t] == 0 for t in range(len(row)) if t not in asked_at)


@given(task_fields(), st.integers(0, 2**32))
def test_rows_obey_the_rule(fields, seed):
    batch = CheckerTask(**fields).batch(4, np.random.default_rng(seed))
    for row, targets, kinds in zip(
        batch.inputs.tolist(),
        batch.targets.tolist(),
        batch.groups["question"].tolist(),
        strict=True,
    ):
        assert max(row) < fields["vocab_size"]
        check(row, targets, kinds, fields["asked"])


# What rules score that cannot check a claim. Each rule reads the row up to its question, and says
# yes or no.


@lru_cache
def claims(asked, rows=2000, **fields):
    """Every claim of drawn rows: the body, the questions before, the claimed tokens (first,
    second), the answer.
    """
    batch = CheckerTask(asked=asked, **fields).batch(rows, np.random.default_rng(0))
    found = []
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        half = len(row) // 2
        found += [
            (row[:half], row[half : t - 1], a, b, y)
            for t, a, b, y in questions(row, targets)
            if a != ASK
        ]
    return found


def beside(body, token):
    """The neighbour of a token that is not of its pair."""
    place = body.index(token)
    return body[(place + 1) % len(body)] if place % 2 else body[place - 1]


ONE_TOKEN = {
    "b was asked about before": lambda body, past, a, b: b in past,
    "a's other neighbour is smaller than b": lambda body, past, a, b: beside(body, a) < b,
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("rule", ONE_TOKEN)
def test_rules_without_both_places_guess(asked, rule):
    found = claims(asked)
    right = np.mean(
        [ONE_TOKEN[rule](body, past, a, b) == (y == YES) for body, past, a, b, y in found]
    )
    assert right == pytest.approx(0.5, abs=4 * 0.5 / len(found) ** 0.5)


@pytest.mark.parametrize("asked", ASKED)
def test_the_order_of_the_two_tokens_gains_the_reciprocal_of_the_pairs_by_two(asked):
    """True claims are in order; of false ones only the pair that has its neighbour at the other end
    is not.
    """
    found = claims(asked)
    ordered = [(body.index(a) < body.index(b)) == (asked == "second") for body, _, a, b, _ in found]
    right = np.mean([is_so == (y == YES) for is_so, (*_, y) in zip(ordered, found, strict=True)])
    assert right == pytest.approx(0.5 + 2 / 32, abs=4 * 0.5 / len(found) ** 0.5)
