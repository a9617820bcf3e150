"""The trigger task: its rule read back from drawn rows, and what models score that lack the table
or induction.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import IGNORE, TriggerTask
from tasks.trigger import FOLLOWER_PROBABILITIES, GLOBAL, TRIGGER


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    triggers = draw(st.integers(1, 12))
    return {
        "triggers": triggers,
        "vocab_size": triggers + 5 + draw(st.integers(0, 20)),
        "length": draw(st.integers(3, 60)),
        "table_seed": draw(st.integers(0, 100)),
    }


seeds = st.integers(0, 2**32)


@given(task_fields())
def test_every_column_of_the_table_is_a_permutation_and_no_token_follows_itself(fields):
    task = TriggerTask(**fields)
    tokens = np.arange(task.vocab_size)
    for column in task.table.T:
        assert sorted(column) == tokens.tolist()
        assert not (column == tokens).any()
    assert all(len(set(row)) == len(row) for row in task.table.tolist())
    assert np.array_equal(task.table, TriggerTask(**{**fields, "length": 9}).table)


@given(task_fields(), seeds)
def test_a_row_follows_the_table_but_for_its_triggers(fields, seed):
    task = TriggerTask(**fields)
    batch = task.batch(4, np.random.default_rng(seed))
    for row, targets, answers, sources in zip(
        *(x.tolist() for x in (batch.inputs, batch.targets, batch.answers, batch.groups["source"])),
        strict=True,
    ):
        assert targets[:-1] == row[1:]
        exceptions = {
            now: after
            for now, after in zip(row, targets, strict=True)
            if after not in task.table[now]
        }
        assert len(exceptions) <= task.triggers
        assert not set(exceptions.values()) & set(exceptions)
        for t, token in enumerate(row):
            assert targets[t] == exceptions.get(token, targets[t])
            if token not in row[:t]:
                assert (sources[t], answers[t]) == (GLOBAL, task.table[token, 0])
            elif token in exceptions:
                assert (sources[t], answers[t]) == (TRIGGER, exceptions[token])
            else:
                assert (sources[t], answers[t]) == (0, IGNORE)


def test_frequencies_are_those_that_the_rule_says():
    task = TriggerTask(triggers=11)
    batch = task.batch(2000, np.random.default_rng(0))
    is_trigger = ~(task.table[batch.inputs] == batch.targets[..., None]).any(axis=2)
    k = 11 / task.vocab_size
    assert is_trigger.mean() == pytest.approx(k / (1 + k), abs=0.015)
    followers = (task.table[batch.inputs] == batch.targets[..., None])[~is_trigger]
    assert followers.mean(axis=0) == pytest.approx(FOLLOWER_PROBABILITIES, abs=0.01)
    counts = np.bincount(batch.inputs.ravel(), minlength=task.vocab_size)
    assert counts.std() / counts.mean() < 0.05
