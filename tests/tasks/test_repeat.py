"""The task of one repeat at the end: its rule read back from drawn rows, and what models score that
know less.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tasks import IGNORE, RepeatTask


def test_the_answer_is_equally_likely_everywhere():
    """So a model that ignores the last token, or the order of the others, is right in one of six
    cases at most.
    """
    batch = RepeatTask().batch(20_000, np.random.default_rng(0))
    answers, others = batch.targets[:, -1:], batch.inputs[:, :-1]
    place = (others == answers).argmax(axis=1) - 1
    rank = (others < answers).sum(axis=1) - (answers > batch.inputs[:, -1:])[:, 0]
    for found, n in ((answers[:, 0], 16), (place, 6), (rank, 6)):
        assert chisquare(np.bincount(found, minlength=n)).pvalue > 1e-3


@given(st.integers(3, 12), st.integers(0, 9), st.integers(0, 2**32))
def test_a_row_is_different_tokens_and_one_of_them_again(length, more, seed):
    task = RepeatTask(vocab_size=length - 1 + more, length=length)
    batch = task.batch(3, np.random.default_rng(seed))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        *tokens, last = row
        assert len(set(tokens)) == len(tokens)
        assert last in tokens[:-1]
        assert targets == [IGNORE] * len(tokens) + [tokens[tokens.index(last) + 1]]
