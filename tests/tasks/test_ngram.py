"""The n-gram task against its table, held as a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks import IGNORE, NGramTask


def as_dict(task):
    """The table: context -> last token. Fails if a context has two entries."""
    table = {tuple(entry[:-1]): entry[-1] for entry in task.table.tolist()}
    assert len(table) == len(task.table)
    return table


def cut(row, order):
    """A row's n-grams; the last one may be cut off."""
    return [tuple(row[start : start + order]) for start in range(0, len(row), order)]


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    vocab_size, order = draw(st.integers(2, 30)), draw(st.integers(2, 5))
    return {
        "vocab_size": vocab_size,
        "order": order,
        "length": order + draw(st.integers(0, 30)),
        "table_size": draw(st.integers(1, min(300, vocab_size ** (order - 1)))),
        "table_seed": draw(st.integers(0, 100)),
    }


seeds = st.integers(0, 2**32)


# The table


@given(task_fields())
def test_the_table_holds_ids_of_the_vocabulary_and_no_context_twice(fields):
    task = NGramTask(**fields)
    assert len(as_dict(task)) == task.table_size
    assert task.table.shape == (task.table_size, task.order)
    assert task.table.min() >= 0
    assert task.table.max() < task.vocab_size


# The rows


@given(task_fields(), seeds)
def test_every_asked_token_is_the_tables(fields, seed):
    task = NGramTask(**fields)
    table = as_dict(task)
    batch = task.batch(4, np.random.default_rng(seed))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        asked = [t for t in range(task.length) if targets[t] != IGNORE]
        assert asked == list(range(task.order - 2, task.length, task.order))
        for t in asked:
            assert targets[t] == table[tuple(row[t - task.order + 2 : t + 1])]
            assert t + 1 == task.length or row[t + 1] == targets[t]
