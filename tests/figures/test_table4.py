"""Table 4: the problems that are tested, and what is not compared."""

import numpy as np
import pytest

from figures.table4.study import (
    IN_TRAINING,
    TABLE4,
    TRAIN,
    column,
    packed,
    problems_like_training,
    unpacked,
)
from ihlab.study.claim import NOT_TESTED, judged
from ihlab.study.ledger import Folder
from tests.figures.live import HOMES

TASK = TABLE4.config(TABLE4.cells[0]).task


def test_where_training_was_not_learned_more_operations_test_nothing():
    """The committed table, but every second of the problems of training is missed."""
    half = packed(np.arange(500) % 2 == 1)
    assert unpacked(half).sum() == 250
    data = Folder(HOMES["table4"]).data().assign(**{column(IN_TRAINING, TRAIN): half})
    claims = judged(TABLE4.claims(data, "laptop"))
    assert {claim.verdict for claim in claims[:4]} == {NOT_TESTED}
    assert "more than half of the training split's problems with 3 operations" in claims[0].why
    assert "(KV shifting: 0.500, vanilla: 0.500)" in claims[0].why


@pytest.mark.slow
@pytest.mark.parametrize("ops", [3, 4, 5])
def test_tested_problems_need_nothing_that_training_lacks_but_their_operations(ops):
    problems = problems_like_training(TASK, 160, ops, 100, 5)
    assert set(problems.ops) == {ops}
    assert len(problems.tokens) == 100
    assert problems.size.max() <= TASK.length + 1
    trained_on = set(np.unique(TASK.prompts(4000, np.random.default_rng(0)).tokens))
    assert set(np.unique(problems.tokens)) <= trained_on
    assert len({problem.tobytes() for problem in problems.tokens}) > 95
