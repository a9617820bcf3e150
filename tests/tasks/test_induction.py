"""The induction task against its rule, read row by row in plain Python."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import tasks.induction
from tasks import IGNORE, InductionTask
from tests.tasks.shown import picture


def sole_follower(row, t):
    """The token that followed every occurrence of row[t] two or more back; None if there is none,
    or more than one.

    None too where row[t] stands right after itself.
    """
    followers = {row[i + 1] for i in range(t - 1) if row[i] == row[t]}
    immediate = t > 0 and row[t - 1] == row[t]
    return followers.pop() if len(followers) == 1 and not immediate else None


def walk(row):
    """Read a row as the rule wrote it, returning {position: answer} and the positions that were
    drawn.

    Every token is drawn, except that after an unambiguous repeat the next one is forced. The row's
    last token is only ever a next token, so it can be forced or drawn but not asked about.
    """
    answers, drawn = {}, []
    t = 0
    while t < len(row):
        drawn.append(t)
        forced = sole_follower(row, t) if t < len(row) - 1 else None
        if forced is None:
            t += 1
        else:
            answers[t] = forced
            t += 2
    return answers, drawn


def whole_rows(task, rows, seed=0):
    """Tokens [row, length + 1], the last next token included, and answers [row, length], as lists."""
    batch = replace(task, score="tokens").batch(rows, np.random.default_rng(seed))
    return np.hstack([batch.inputs, batch.targets[:, -1:]]).tolist(), batch.answers.tolist()


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    length, min_token, unused = (
        draw(st.integers(3, 40)),
        draw(st.integers(0, 12)),
        draw(st.integers(0, 60)),
    )
    return {"vocab_size": min_token + length + unused, "length": length, "min_token": min_token}


seeds = st.integers(0, 2**32)


# The oracle itself


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ([4, 7, 8, 4, 7, 5], {3: 7}),
        (
            [6, 5, 5, 6, 5, 2],
            {3: 5},
        ),  # the forced 5 ends there, or its two followers would be compared
        (
            [1, 2, 3, 1, 2, 4, 2, 9],
            {3: 2},
        ),  # the forced 2 went on differently: later it has no single answer
        ([1, 2, 1], {}),  # the repeat is the row's last token: nothing can be asked
    ],
)
def test_the_walk_reads_rows_made_by_hand(row, answers):
    assert walk(row)[0] == answers


def test_the_worked_row_in_the_docstring_obeys_the_rule():
    cells = picture(tasks.induction.__doc__)
    answers, _ = walk([int(token) for token in cells["input"]])
    assert [t for t, role in enumerate(cells["role"]) if role == "R"] == list(answers)
    assert {t: int(target) for t, target in enumerate(cells["target"]) if target} == answers


# The rule


@given(task_fields(), seeds)
def test_rows_obey_the_rule(fields, seed):
    task = InductionTask(**fields)
    all_gaps = task.batch(4, np.random.default_rng(seed)).groups["gap"].tolist()
    for row, answers, gaps in zip(*whole_rows(task, 4, seed), all_gaps, strict=True):
        asked = {t: answer for t, answer in enumerate(answers) if answer != IGNORE}
        assert asked
        assert walk(row)[0] == asked
        assert task.min_token <= min(row)
        assert max(row) < task.vocab_size
        assert len(set(row)) <= task.length
        for t in range(task.length):
            earlier = [i for i in range(t - 1) if row[i] == row[t]]
            assert gaps[t] == (t - earlier[-1] if t in asked else 0)
            if t in asked:
                # Saying the own token is right only where an earlier `m m` says that m follows m.
                assert asked[t] != row[t] or (row[t], row[t]) in itertools.pairwise(row[:t])


@given(task_fields(), seeds)
def test_immediate_repeats_are_scored_on_demand(fields, seed):
    """Read token by token: a drawn token that occurred before and had one follower is an answer,
    whatever the gap.
    """
    task = InductionTask(**fields, score_immediate=True)
    gaps = task.batch(4, np.random.default_rng(seed)).groups["gap"]
    for row, answers, gap in zip(*whole_rows(task, 4, seed), gaps, strict=True):
        t, expected = 0, np.full(task.length, IGNORE)
        while t < task.length:
            earlier = [i for i in range(t) if row[i] == row[t]]
            followers = {row[i + 1] for i in earlier}
            if len(followers) == 1:
                expected[t] = followers.pop()
                assert gap[t] == t - earlier[-1]
                t += 1  # the next token was forced
            t += 1
        assert np.array_equal(answers, expected)


# A period


@st.composite
def periodic_fields(draw):
    """The fields of a task with a period."""
    fields = draw(task_fields())
    return {**fields, "period": draw(st.integers(2, fields["length"] - 1))}


@given(periodic_fields(), seeds)
def test_a_periodic_row_repeats_distinct_tokens_and_asks_for_each_repeat(fields, seed):
    task, period = InductionTask(**fields), fields["period"]
    gaps = task.batch(4, np.random.default_rng(seed)).groups["gap"]
    for row, answers, gap in zip(*whole_rows(task, 4, seed), gaps.tolist(), strict=True):
        assert len(set(row[:period])) == period
        assert all(task.min_token <= token < task.vocab_size for token in row)
        for t in range(task.length):
            assert row[t] == row[t % period]
            assert answers[t] == (row[t + 1] if t >= period else IGNORE)
            assert gap[t] == (period if t >= period else 0)


# What is scored


def test_score_first_targets_the_first_answer_only():
    batch = InductionTask(score="first").batch(4, np.random.default_rng(0))
    for targets, answers in zip(batch.targets, batch.answers, strict=True):
        first = np.flatnonzero(answers != IGNORE)[0]
        assert np.flatnonzero(targets != IGNORE).tolist() == [first]
        assert targets[first] == answers[first]


# Randomness


def test_pairs_of_different_ids_are_uniform():
    """The pool is a uniform choice of ids, not only each of its members."""
    rows, _ = whole_rows(InductionTask(vocab_size=9, length=6, min_token=1), 8000)
    counts = np.zeros((8, 8), int)
    for row in rows:
        different = list(dict.fromkeys(row))
        if len(different) > 1:
            counts[different[0] - 1, different[1] - 1] += 1
    assert chisquare(counts[~np.eye(8, dtype=bool)]).pvalue > 1e-3
