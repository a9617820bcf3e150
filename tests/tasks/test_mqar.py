"""Multi-query associative recall against its rule, and the law of its gaps against exact
probabilities.
"""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tasks import IGNORE, MQARTask


def slots_of(task, batch):
    """For each row the slot (1, 2, ...) at which each key, in the order of the pairs, is asked for."""
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        queried = {row[t]: t for t in range(task.length) if targets[t] != IGNORE}
        yield [(queried[key] - 2 * task.pairs) // 2 + 1 for key in row[: 2 * task.pairs : 2]]


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    pairs = draw(st.integers(1, 8))
    return {
        "pairs": pairs,
        "vocab_size": 2 * pairs + 2 + draw(st.integers(0, 40)),
        "length": 4 * pairs + draw(st.integers(0, 30)),
        "power_a": draw(st.sampled_from([0.01, 0.5, 1.0])),
    }


seeds = st.integers(0, 2**32)


# The rule


@given(task_fields(), st.integers(1, 4), seeds)
def test_rows_obey_the_rule(fields, value_gap, seed):
    """Different keys, their values from the other half; each key is asked once; gaps count slots."""
    pairs = fields["pairs"]
    width, front = 1 + value_gap, pairs * (1 + value_gap)
    task = MQARTask(
        **{**fields, "length": fields["length"] + front - 2 * pairs, "value_gap": value_gap}
    )
    batch = task.batch(4, np.random.default_rng(seed))
    for row, targets, gaps in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.groups["gap"].tolist(), strict=True
    ):
        known = dict(zip(row[:front:width], row[value_gap:front:width], strict=True))
        assert len(known) == len(set(known.values())) == pairs
        assert min(known) >= 1
        assert max(known) < task.vocab_size // 2 <= min(known.values())
        assert max(known.values()) < task.vocab_size
        asked = {t: target for t, target in enumerate(targets) if target != IGNORE}
        assert sorted(row[t] for t in asked) == sorted(known)
        assert all(known[row[t]] == target for t, target in asked.items())
        assert all(t >= front and (t - front) % 2 == 0 for t in asked)
        for t in range(task.length):
            assert gaps[t] == ((t - front) // 2 + 1 if t in asked else 0)


# The law of the gaps


@pytest.mark.parametrize("power_a", [0.01, 1.0])
def test_slots_are_weighted_draws_without_replacement(power_a):
    """The joint law of three keys' slots, against p_i p_j / (1 - p_i) p_k / (1 - p_i - p_j)."""
    task = MQARTask(length=16, pairs=3, power_a=power_a)
    p = np.arange(1.0, 6) ** (power_a - 1)
    p /= p.sum()
    law = {
        (i + 1, j + 1, k + 1): p[i] * p[j] / (1 - p[i]) * p[k] / (1 - p[i] - p[j])
        for i, j, k in permutations(range(5), 3)
    }
    drawn = [tuple(slots) for slots in slots_of(task, task.batch(20_000, np.random.default_rng(0)))]
    counts = dict.fromkeys(law, 0)
    for slots in drawn:
        counts[slots] += 1
    expected = 20_000 * np.array(list(law.values()))
    assert expected.sum() == pytest.approx(20_000)
    assert chisquare(list(counts.values()), expected).pvalue > 1e-3


# Values farther from their keys


def test_what_stands_between_a_key_and_its_value_is_filled_like_the_rest():
    rows = MQARTask(vocab_size=20, value_gap=3).batch(500, np.random.default_rng(0))
    counts = np.bincount(rows.inputs[:, :16].reshape(-1, 4)[:, 1:3].ravel(), minlength=20)
    assert chisquare(counts).pvalue > 1e-3
