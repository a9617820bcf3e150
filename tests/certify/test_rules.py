"""The rules of the tasks against the tasks themselves: every sequence of a small vocabulary, and
millions of draws.
"""

from itertools import product

import numpy as np
import pytest

from ihlab.certify.rules import rule_for
from tasks import IGNORE, InductionTask, MQARTask

INDUCTION = {"vocab_size": 4, "length": 4, "min_token": 0}
CASES = {
    "induction": (InductionTask(**INDUCTION), 4, 400_000),
    "induction, immediate": (InductionTask(**INDUCTION, score_immediate=True), 4, 400_000),
    "induction, bos": (InductionTask(vocab_size=5, length=5, min_token=0, bos=True), 5, 400_000),
}


@pytest.mark.parametrize(("task", "length", "draws"), CASES.values(), ids=CASES)
def test_a_rule_accepts_exactly_what_the_task_draws(task, length, draws):
    """Also: what the task draws is right by the weaker rule, which knows nothing of the task's
    other tokens.
    """
    batch = task.batch(draws, np.random.default_rng(0))
    ends = batch.answers[:, length - 1] != IGNORE
    questions = np.column_stack([batch.inputs[ends, :length], batch.answers[ends, length - 1]])
    drawn = set(map(tuple, questions.tolist()))
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
    assert set(weaker.words) >= set(rule.words)


def test_without_a_known_task_the_answer_must_follow_wherever_the_query_stands():
    """By a loop over tokens."""
    rng, rule = np.random.default_rng(0), rule_for(MQARTask(vocab_size=32, length=24), "any")
    tokens, answers = rng.integers(0, 3, (2000, 7)), rng.integers(0, 3, 2000)
    right = rule.right(tokens, answers)
    assert rule.drawable(tokens, answers) is None
    assert {True, False} == {*right.tolist()}
    for row, answer, is_right in zip(tokens.tolist(), answers.tolist(), right, strict=True):
        places = [place for place, token in enumerate(row[:-1]) if token == row[-1]]
        assert is_right == (len(places) > 0 and all(row[place + 1] == answer for place in places))
