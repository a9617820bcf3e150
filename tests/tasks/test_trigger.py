"""The trigger task: its rule read back from drawn rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks import IGNORE, TriggerTask
from tasks.trigger import GLOBAL, TRIGGER


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
