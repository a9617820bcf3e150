"""The task of one repeat at the end: its rule read back from drawn rows, and what models score that know less."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks.repeat
from tasks import IGNORE, ConfigError, RepeatTask


def check(row, targets):
    *tokens, last = row
    assert len(set(tokens)) == len(tokens)
    assert last in tokens[:-1]
    assert targets == [IGNORE] * len(tokens) + [tokens[tokens.index(last) + 1]]


def test_the_worked_row_in_the_docstring_obeys_the_rule():
    picture = [line.split() for line in tasks.repeat.__doc__.splitlines() if line.startswith("    ")]
    row, target = ([int(x) for x in line[1:]] for line in picture)
    check(row, [IGNORE] * 7 + target)


@given(st.integers(3, 12), st.integers(0, 9), st.integers(0, 2**32))
def test_a_row_is_different_tokens_and_one_of_them_again(length, more, seed):
    batch = RepeatTask(vocab_size=length - 1 + more, length=length).batch(3, np.random.default_rng(seed))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        check(row, targets)


def test_the_answer_is_equally_likely_everywhere():
    """So a model that ignores the last token, or the order of the others, is right in one of six cases at most."""
    batch = RepeatTask().batch(20_000, np.random.default_rng(0))
    answers = batch.targets[:, -1:]
    assert np.bincount(answers[:, 0], minlength=16) / 20_000 == pytest.approx(np.full(16, 1 / 16), abs=0.01)
    at = (batch.inputs[:, :-1] == answers).argmax(axis=1)
    assert np.bincount(at, minlength=8) / 20_000 == pytest.approx([0, *[1 / 6] * 6, 0], abs=0.015)
    others = np.sort(batch.inputs[:, :-1], axis=1)
    rank = (others < answers).sum(axis=1) - (answers > batch.inputs[:, -1:])[:, 0]
    assert np.bincount(rank, minlength=6) / 20_000 == pytest.approx(np.full(6, 1 / 6), abs=0.015)


def test_a_batch_is_a_function_of_the_generator():
    one, same, other = (RepeatTask().batch(5, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.inputs, same.inputs)
    assert not np.array_equal(one.inputs, other.inputs)
    assert RepeatTask().batch(0, np.random.default_rng(0)).inputs.shape == (0, 8)


def test_what_is_shown_has_the_one_target():
    batch = RepeatTask().batch(1, np.random.default_rng(0))
    lines = RepeatTask().show(batch, 0).splitlines()
    assert lines[1].split()[1:] == [str(token) for token in batch.inputs[0]]
    assert lines[2].split()[1:] == [str(batch.targets[0, -1])]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"length": 2}, "RepeatTask.length is 2, but a repeat needs at least 3 positions."),
        ({"vocab_size": 6}, "RepeatTask.vocab_size is 6, but must be at least 7: a sequence of length=8"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        RepeatTask(**fields)
