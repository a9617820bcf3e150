"""Rows after a beginning-of-sequence token: those of the same task without it."""

import numpy as np
import pytest

from tasks import IGNORE, ConfigError, InductionTask, MQARTask, NGramTask
from tasks.bos import without_bos

SMALL = [
    InductionTask(vocab_size=64, length=17, bos=True),
    InductionTask(vocab_size=64, length=17, score="tokens", bos=True),
    NGramTask(vocab_size=17, length=13, table_size=20, bos=True),
    MQARTask(vocab_size=33, length=25, pairs=3, value_gap=2, bos=True),
]


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.kind)
def test_what_follows_the_token_is_a_row_of_the_task_without_it(task):
    batch, inner = (t.batch(8, np.random.default_rng(1)) for t in (task, without_bos(task)))
    assert (batch.inputs[:, 0] == task.vocab_size - 1).all()
    assert batch.inputs.shape == (8, task.length)
    assert inner.inputs.max() < task.vocab_size - 1
    assert np.array_equal(batch.inputs[:, 1:], inner.inputs)
    for after, alone in ((batch.targets, inner.targets), (batch.answers, inner.answers)):
        assert (after[:, 0] == IGNORE).all()
        assert np.array_equal(after[:, 1:], alone)
    assert batch.groups.keys() == inner.groups.keys()
    for name, values in batch.groups.items():
        assert np.array_equal(values[:, 1:], inner.groups[name])


def roles(text, length):
    """The role of each position, of lines with 16 positions in cells of 5 characters."""
    cells = [line[9:].ljust(80) for line in text.splitlines() if line.startswith("role")]
    return [cell[i : i + 5].strip() for cell in cells for i in range(0, 80, 5)][:length]


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.kind)
def test_a_row_is_shown_with_its_roles_one_place_later(task):
    inner = without_bos(task)
    shown, alone = (roles(t.show(t.batch(1, np.random.default_rng(1)), 0), t.length) for t in (task, inner))
    assert shown == ["", *alone]


def test_a_refusal_says_that_the_token_takes_a_place():
    with pytest.raises(ConfigError, match=r"InductionTask.length is 2, .* \(InductionTask.bos is True"):
        InductionTask(length=3, bos=True)
