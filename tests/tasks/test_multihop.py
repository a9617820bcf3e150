"""The multi-hop task against its definition, iterated on strings."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks.multihop
from tasks import IGNORE, ConfigError, MultiHopTask
from tests.tasks.shown import picture


def find(k, text, i):
    """find_k(i) on a row as a string, position 0 of which is the hop token; None where it is
    undefined.
    """
    for _ in range(k):
        earlier = text.rfind(text[i], 1, i)
        if earlier == -1:
            return None
        i = earlier + 1
    return i


def as_strings(task, batch):
    """Each row as a string of "?" and letters a, b, ...; its targets and answers: letters, "-"
    none, "." blank.
    """
    letters = {task.max_hops + 1 + n: chr(ord("a") + n) for n in range(task.alphabet)}
    symbols = {
        **letters,
        task.max_hops + 1 + task.alphabet: "-",
        task.max_hops + 2 + task.alphabet: ".",
    }
    for row, targets, answers in zip(batch.inputs, batch.targets, batch.answers, strict=True):
        text = "?" + "".join(letters[token] for token in row[1:])
        yield (
            text,
            "".join(symbols[t] for t in targets),
            [None if a == IGNORE else letters[a] for a in answers],
        )


def expected(k, text):
    """Targets and answers by the definition."""
    found = [find(k, text, i) for i in range(1, len(text))]
    targets = "." + "".join("-" if j is None else text[j] for j in found)
    return targets, [None if target in "-." else target for target in targets]


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    max_hops, alphabet = draw(st.integers(0, 16)), draw(st.integers(2, 6))
    length, unused = max_hops + 3 + draw(st.integers(0, 60)), draw(st.integers(0, 5))
    vocab_size = max_hops + 1 + alphabet + 2 + unused
    return {"vocab_size": vocab_size, "length": length, "max_hops": max_hops, "alphabet": alphabet}


seeds = st.integers(0, 2**32)


# The oracle itself


@pytest.mark.parametrize(
    ("k", "text", "targets"),
    [
        (2, "?babab", ".---ab"),
        (1, "?bacbabca", ".---acabb"),
        (2, "?bacbabca", ".-----caa"),
    ],
)
def test_the_definition_on_strings_read_by_hand(k, text, targets):
    assert expected(k, text)[0] == targets


def test_the_worked_row_in_the_docstring_obeys_the_definition():
    cells = picture(tasks.multihop.__doc__)
    text = "?" + "".join(cells["input"][1:])
    assert cells["input"][0] == "k=2"
    assert "".join(cells["target"]) == expected(2, text)[0]
    for k in (1, 2):
        assert cells[f"find_{k}"] == ["", *(str(find(k, text, i) or "") for i in range(1, 9))]


# The rule


@given(task_fields(), seeds)
def test_targets_and_answers_are_a_direct_iteration_of_the_definition(fields, seed):
    task = MultiHopTask(**fields)
    batch = task.batch(6, np.random.default_rng(seed))
    for (text, targets, answers), k in zip(
        as_strings(task, batch), batch.groups["hops"], strict=True
    ):
        assert (targets, answers) == expected(k, text)
        assert not any(map(str.__eq__, text, text[1:]))
    assert np.array_equal(batch.inputs[:, 0], batch.groups["hops"])
    assert batch.inputs[:, 0].max() <= task.max_hops


# How much is asked


@pytest.mark.parametrize("k", [0, 16])
def test_the_original_asks_97_minus_3k_times_in_nearly_every_row(k):
    """The counts behind the original's stored errors, 98 at k = 0."""
    batch = MultiHopTask().batch_of(k, 1000, np.random.default_rng(k))
    asked = Counter((batch.answers != IGNORE).sum(axis=1).tolist())
    wanted = 97 - 3 * k if k else 98
    assert min(asked) >= wanted
    assert asked[wanted] >= 998


# Rows of one number of hops


@given(task_fields(), seeds)
def test_rows_of_one_number_of_hops_have_the_same_letters_whatever_it_is(fields, seed):
    task = MultiHopTask(**fields)
    batches = [task.batch_of(k, 3, np.random.default_rng(seed)) for k in range(task.max_hops + 1)]
    for k, batch in enumerate(batches):
        assert batch.groups["hops"].tolist() == [k] * 3
        assert np.array_equal(batch.inputs[:, 1:], batches[0].inputs[:, 1:])


@pytest.mark.parametrize("hops", [-1, 17])
def test_other_numbers_of_hops_are_refused(hops):
    with pytest.raises(ConfigError, match=rf"hops is {hops}, but must be in 0 \.\. max_hops=16"):
        MultiHopTask().batch_of(hops, 1, np.random.default_rng(0))
