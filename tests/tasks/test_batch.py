"""Batch: its defaults, its checks and its parts."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tasks import IGNORE, Batch

ROWS = np.array([[1, 2, 1, 2]])
TARGETS = np.array([[IGNORE, IGNORE, 2, IGNORE]])


def test_answers_are_the_targets_unless_given():
    assert Batch(inputs=ROWS, targets=TARGETS).answers is TARGETS
    assert Batch(inputs=ROWS, targets=ROWS, answers=TARGETS).answers is TARGETS


@pytest.mark.parametrize(
    "targets", [TARGETS.astype(np.int32), TARGETS[0], TARGETS[:, :3]], ids=["type", "rank", "pos"]
)
def test_shapes_and_types_are_checked_in_tests(targets):
    """The import hook of conftest.py is at work."""
    with pytest.raises(TypeCheckError):
        Batch(inputs=ROWS, targets=targets)


def test_rows_cuts_everything_alike():
    grid = np.arange(12).reshape(4, 3)
    batch = Batch(
        inputs=grid,
        targets=grid + 1,
        answers=grid + 2,
        groups={"hops": np.arange(4)},
        document_starts=grid % 2 == 0,
    )
    middle = batch.rows(1, 3)
    assert middle.inputs.tolist() == grid[1:3].tolist()
    assert middle.targets.tolist() == (grid + 1)[1:3].tolist()
    assert middle.answers.tolist() == (grid + 2)[1:3].tolist()
    assert middle.groups["hops"].tolist() == [1, 2]
    assert middle.document_starts.tolist() == (grid % 2 == 0)[1:3].tolist()
