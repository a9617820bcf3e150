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
    starts, hops = grid % 2 == 0, np.arange(4)
    middle = Batch(grid, grid + 1, grid + 2, {"hops": hops}, starts).rows(1, 3)
    cut = (middle.inputs, middle.targets, middle.answers, middle.groups["hops"])
    for found, whole in zip(cut, (grid, grid + 1, grid + 2, hops), strict=True):
        assert np.array_equal(found, whole[1:3])
    assert np.array_equal(middle.document_starts, starts[1:3])
