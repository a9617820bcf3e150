"""Walks along a permutation, against walks along the pairs one step after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import IGNORE, ConfigError, DepoTask, Task
from tasks.codec import from_plain, to_plain


@st.composite
def task_fields(draw):
    """The fields of a task. (Not the task: beartype, at work while it is made, upsets a hypothesis
    strategy.)
    """
    names = draw(st.integers(2, 12))
    max_hops = draw(st.integers(1, names - 1))
    return {
        "names": names,
        "max_hops": max_hops,
        "vocab_size": max_hops + 2 + names + draw(st.integers(0, 10)),
        "length": 2 * names + 4 + draw(st.integers(0, 60)),
    }


@given(task_fields(), st.integers(0, 2**32))
def test_answers_are_walks_along_the_pairs(fields, seed):
    task = DepoTask(**fields)
    batch = task.batch(4, np.random.default_rng(seed))
    rows = (batch.inputs.tolist(), batch.targets.tolist(), batch.groups["hops"].tolist())
    for tokens, targets, hops in zip(*rows, strict=True):
        pairs, queries = tokens[1 : 1 + 2 * task.names], tokens[1 + 2 * task.names :]
        successor = dict(zip(pairs[::2], pairs[1::2], strict=True))
        assert len(successor) == task.names == len(set(successor.values()))
        assert min(successor) > task.max_hops + 1 == tokens[0]
        asked = []
        for start in range(0, len(queries) - 2, 3):
            k, name, answer = queries[start : start + 3]
            if k:
                asked.append(name)
                for _ in range(k):
                    name = successor[name]
                t = 2 * task.names + 2 + start
                assert (targets[t], hops[t]) == (answer, k) == (name, k)
        assert len(asked) == len(set(asked)) == min(task.names, len(queries) // 3)
        assert sum(target != IGNORE for target in targets) == sum(k > 0 for k in hops) == len(asked)
        assert not any(queries[3 * len(asked) :])


def test_words_are_numbers_for_names_alone():
    words = DepoTask(vocab_size=7, max_hops=2, names=3).words(np.arange(7))
    assert words == ". k=1 k=2 bos 4 5 6".split()


def test_tasks_stored_with_names_of_one_token_still_open():
    stored = to_plain(DepoTask())
    assert from_plain(Task, stored | {"name_length": [1, 1]}) == DepoTask()
    with pytest.raises(
        ConfigError, match=r"DepoTask\.name_length is \[1, 3\], but this field was removed"
    ):
        from_plain(Task, stored | {"name_length": [1, 3]})
