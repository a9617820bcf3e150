"""Batch: its defaults, its checks and its parts."""

import numpy as np

from tasks import IGNORE, Batch

ROWS = np.array([[1, 2, 1, 2]])
TARGETS = np.array([[IGNORE, IGNORE, 2, IGNORE]])


def test_answers_are_the_targets_unless_given():
    assert Batch(inputs=ROWS, targets=TARGETS).answers is TARGETS
    assert Batch(inputs=ROWS, targets=ROWS, answers=TARGETS).answers is TARGETS


def test_rows_cuts_everything_alike():
    grid = np.arange(12).reshape(4, 3)
    starts, hops = grid % 2 == 0, np.arange(4)
    middle = Batch(grid, grid + 1, grid + 2, {"hops": hops}, starts).rows(1, 3)
    cut = (middle.inputs, middle.targets, middle.answers, middle.groups["hops"])
    for found, whole in zip(cut, (grid, grid + 1, grid + 2, hops), strict=True):
        assert np.array_equal(found, whole[1:3])
    assert np.array_equal(middle.document_starts, starts[1:3])
