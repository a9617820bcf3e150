"""Walks along a permutation, against walks along the pairs one step after another."""

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

import tasks.depo
from tasks import IGNORE, DepoTask
from tests.tasks.deep import depo_answers, depo_row
from tests.tasks.shown import picture


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis strategy.)"""
    names, shortest = draw(st.integers(2, 12)), draw(st.integers(1, 7))
    longest, max_hops = draw(st.integers(shortest, 7)), draw(st.integers(1, names - 1))
    length = 2 + 2 * (names + 1) * longest + draw(st.integers(0, 60))
    vocab_size = max_hops + 2 + (names if longest == 1 else 8) + draw(st.integers(0, 10))
    name_length = (shortest, longest)
    return {
        "vocab_size": vocab_size,
        "length": length,
        "names": names,
        "max_hops": max_hops,
        "name_length": name_length,
    }


def answers_of(targets, groups):
    return [(t, target, groups[t]) for t, target in enumerate(targets) if target != IGNORE]


def test_the_worked_row_in_the_docstring_obeys_the_rule():
    task, cells = DepoTask(vocab_size=10, names=4, max_hops=3, length=18), picture(tasks.depo.__doc__)
    words = task.words(np.arange(10))
    tokens = [words.index(word) for word in cells["input"]]
    asked = {t: target for t, target, _ in depo_answers(task, tokens)}
    assert {t: int(target) for t, target in enumerate(cells["target"]) if target} == asked


@given(task_fields(), st.integers(0, 2**32))
def test_answers_are_walks_along_the_pairs(fields, seed):
    task = DepoTask(**fields)
    batch = task.batch(4, np.random.default_rng(seed))
    rows = (batch.inputs.tolist(), batch.targets.tolist(), batch.groups["hops"].tolist())
    for tokens, targets, hops in zip(*rows, strict=True):
        found = list(depo_answers(task, tokens))
        assert answers_of(targets, hops) == found
        assert all(targets[t] == tokens[t + 1] for t, *_ in found)
        assert sum(hops) == sum(k for *_, k in found)
        queries = [tokens[t : t + task.length] for t in range(task.length) if 1 <= tokens[t] <= task.max_hops]
        assert len(queries) == len({tuple(query[1 : 1 + _end(task, query)]) for query in queries}) <= task.names
        unused = task.length - max(t for t, token in enumerate(tokens) if token) - 1
        assert len(queries) == task.names or unused < 1 + 2 * task.name_length[1]


def _end(task, query):
    """How many tokens the name after the hop token has."""
    return next(t for t, word in enumerate(task.words(np.array(query))[1:], 1) if not word.endswith("-"))


def test_sequences_are_drawn_like_those_of_plain_python():
    """The first pair, the first query, its hops and its answer, jointly, and the tokens of the first name."""
    rng, n = random.Random(0), 6000
    for task in (
        DepoTask(vocab_size=7, names=3, max_hops=2, length=13),
        DepoTask(vocab_size=9, names=3, max_hops=1, length=30, name_length=(1, 3)),
    ):
        front = slice(1, 3), slice(7, 10) if task.name_length == (1, 1) else slice(3, 4)
        ours = task.batch(n, np.random.default_rng(0)).inputs.tolist()
        plain = [depo_row(task, rng)[0] for _ in range(n)]
        counts = [Counter(tuple(row[front[0]] + row[front[1]]) for row in rows) for rows in (ours, plain)]
        cells = [key for key in counts[0] | counts[1] if counts[0][key] + counts[1][key] >= 10]
        assert len(cells) >= 36
        assert chi2_contingency([[count[key] for key in cells] for count in counts]).pvalue > 1e-3


def test_words_tell_tokens_inside_names_from_those_that_end_them():
    task = DepoTask(vocab_size=8, max_hops=2, names=3, length=40, name_length=(1, 2))
    assert task.words(np.arange(8)) == [".", "k=1", "k=2", "bos", "4-", "5-", "6", "7"]
