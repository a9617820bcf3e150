"""The rules of the tasks against the tasks themselves: every sequence of a small vocabulary, and
millions of draws.
"""

from itertools import product

import numpy as np
import pytest

from ihlab.certify.rules import rule_for
from tasks import (
    IGNORE,
    ConfigError,
    DepoTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    PairTask,
    RepeatTask,
)

INDUCTION = {"vocab_size": 4, "length": 4, "min_token": 0}
CASES = {
    "induction": (InductionTask(**INDUCTION), 4, 400_000),
    "induction, immediate": (InductionTask(**INDUCTION, score_immediate=True), 4, 400_000),
    "induction, periodic": (InductionTask(**INDUCTION, period=2), 4, 10_000),
    "induction, bos": (InductionTask(vocab_size=5, length=5, min_token=0, bos=True), 5, 400_000),
    "repeat": (RepeatTask(vocab_size=5, length=5), 5, 100_000),
    "recall": (MQARTask(vocab_size=6, length=8, pairs=2, power_a=1.0), 7, 400_000),
    "recall, blanks": (
        MQARTask(vocab_size=8, length=7, pairs=1, power_a=1.0, fill="blank"),
        5,
        100_000,
    ),
    "recall, distant values": (
        MQARTask(vocab_size=6, length=7, pairs=1, power_a=1.0, value_gap=2),
        6,
        100_000,
    ),
    "hops": (MultiHopTask(vocab_size=8, length=6, max_hops=2, alphabet=3), 6, 100_000),
    "n-grams": (NGramTask(vocab_size=4, length=6, order=3, table_size=5), 5, 10_000),
}


def is_clear(task, tokens, answer):
    """Return whether the recalled key never stands before another token than its value."""
    gap = task.value_gap
    return all(
        tokens[i + gap : i + gap + 1] == (answer,)
        for i in range(len(tokens) - 1)
        if tokens[i] == tokens[-1]
    )


@pytest.mark.parametrize(("task", "length", "draws"), CASES.values(), ids=CASES)
def test_a_rule_accepts_exactly_what_the_task_draws(task, length, draws):
    """Also: what the task draws is right by the weaker rule, which knows nothing of the task's
    other tokens.
    """
    batch = task.batch(draws, np.random.default_rng(0))
    ends = batch.answers[:, length - 1] != IGNORE
    questions = np.column_stack([batch.inputs[ends, :length], batch.answers[ends, length - 1]])
    drawn = set(map(tuple, questions.tolist()))
    if isinstance(task, MQARTask):
        drawn = {row for row in drawn if is_clear(task, row[:-1], row[-1])}
    if isinstance(task, MultiHopTask):
        drawn = {row for row in drawn if row[0] > 0}
    rule = rule_for(task, "task")
    ids = range(task.vocab_size - rule.begin)
    every = np.array(list(product(ids, repeat=length - rule.begin)))
    accepted = set()
    for answer in ids:
        legal = every[rule.drawable(every, np.full(len(every), answer))]
        accepted |= {
            (*([task.vocab_size - 1] * rule.begin), *row, answer) for row in legal.tolist()
        }
    assert accepted == drawn
    assert len(drawn) > 4
    rows = np.array(sorted(drawn))
    weaker = rule_for(task, "any")
    assert weaker.right(rows[:, rule.begin : -1], rows[:, -1]).all()
    assert set(weaker.words[:, 0]) >= set(rule.words[:, 0])


def test_without_a_known_task_the_answer_must_follow_wherever_the_query_stands():
    """By a loop over tokens; in pairs, the last two tokens are the query."""
    rng = np.random.default_rng(0)
    for task, context in ((DepoTask(), 1), (PairTask(vocab_size=8, length=12, letters=2), 2)):
        rule = rule_for(task, "any")
        tokens, answer = rng.integers(0, 3, (2000, 7)), rng.integers(0, 3, 2000)
        expected, first = [], []
        for row, right in zip(tokens.tolist(), answer.tolist(), strict=True):
            query = row[-context:]
            places = [
                i for i in range(context - 1, len(row) - 1) if row[i - context + 1 : i + 1] == query
            ]
            expected.append(bool(places) and all(row[i + 1] == right for i in places))
            first.append([*range(places[0] - context + 1, places[0] + 2)] if places else None)
        assert rule.right(tokens, answer).tolist() == expected
        assert {True, False} == set(expected)
        assert [located and [*located] for located in map(rule.located, tokens)] == first
        assert rule.drawable(tokens, answer) is None


def test_a_task_without_a_rule_is_refused_with_what_is_possible():
    with pytest.raises(
        ConfigError,
        match=r"the task 'depo' can draw, only that of induction, .*: support='any' takes",
    ):
        rule_for(DepoTask(), "task")
