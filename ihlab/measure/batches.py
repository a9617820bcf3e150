"""Batches of a task: pure functions of the task, a seed, the split and the step."""

from typing import Literal

import numpy as np

from tasks import Batch, Task

SPLITS = ("train", "eval", "probe")
Split = Literal["train", "eval", "probe"]

EVAL_SEED = 20241129
"""One held-out set for every run of a task, whatever the run's own seed."""


def draw(task: Task, seed: int, split: Split, step: int, size: int) -> Batch:
    """The batch of one step. Counter-seeded: no step depends on having drawn another.

    A task whose rows for evaluation are others than those of training, such as held-out documents, has the task that
    draws them as `held_out`.
    """
    if split == "eval":
        task = getattr(task, "held_out", task)
    return task.batch(size, np.random.default_rng([SPLITS.index(split), seed, step]))
