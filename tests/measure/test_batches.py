"""Batches of a task: drawn as a function of task, seed, split and step, and refused where they are
no rows of it.
"""

import dataclasses

import numpy as np
import pytest

from ihlab.measure.batches import draw, require_batch
from tasks import ConfigError, InductionTask

pytestmark = pytest.mark.usefixtures("unchecked")

TASK = InductionTask(vocab_size=20, length=6)
BATCH = draw(TASK, 0, "train", 3, 4)


def test_a_batch_is_a_function_of_seed_split_and_step():
    assert np.array_equal(BATCH.inputs, draw(TASK, 0, "train", 3, 4).inputs)
    for other in ((1, "train", 3), (0, "eval", 3), (0, "train", 2)):
        assert not np.array_equal(BATCH.inputs, draw(TASK, *other, 4).inputs)


def changed(array, value):
    array = array.copy()
    array[1, 2] = value
    return array


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"targets": BATCH.targets[:, :-1]},
            r"targets as int64, \[4, 5\], but .* int64, \[4, 6\]",
        ),
        ({"answers": BATCH.answers.astype(np.int32)}, "answers as int32"),
        ({"inputs": changed(BATCH.inputs, 20)}, "id 20 in inputs, but ids are 0 to 19"),
        (
            {"targets": changed(BATCH.targets, -1)},
            "id -1 in targets, .* or -100 where nothing is scored",
        ),
        ({"document_starts": BATCH.inputs}, "document_starts as int64"),
        ({"groups": {"half": [0, 0, 0, 0]}}, r"'half' as list, but .* integer, \[4\] or \[4, 6\]"),
    ],
)
def test_what_is_no_batch_of_the_task_is_named(change, words):
    with pytest.raises(ConfigError, match=f"InductionTask.batch returned .*{words}"):
        require_batch(TASK, dataclasses.replace(BATCH, **change), 4)
