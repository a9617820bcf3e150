"""Sequences that begin with a beginning-of-sequence token: a position without content that a head can attend to.

The tasks with a field `bos` share this. The token has the last id, which `vocab_size` counts, and the first
position, which `length` counts. After it comes a sequence of the same task without the token.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from tasks.batch import IGNORE, Batch
from tasks.config import ConfigError


class MayHaveBos:
    """A task with a field `bos`."""

    @property
    def begins_with(self: Any) -> tuple[int, ...]:
        """The ids at the start of every sequence."""
        return (self.vocab_size - 1,) if self.bos else ()


def without_bos(task: Any) -> Any:
    """Return the task whose sequences follow the token. Raises `ConfigError` if that task is too small."""
    try:
        return replace(task, bos=False, vocab_size=task.vocab_size - 1, length=task.length - 1)
    except ConfigError as error:
        name = type(task).__name__
        message = f"{error} ({name}.bos is True: the token takes one id of vocab_size and one position of length.)"
        raise ConfigError(message) from None


def batch_with_bos(task: Any, size: int, rng: np.random.Generator) -> Batch:
    """Draw sequences of `without_bos(task)` and prepend the token, which is not scored and has group 0."""
    batch = without_bos(task).batch(size, rng)

    def after(values: np.ndarray, first: int) -> np.ndarray:
        return np.insert(values, 0, first, axis=1)

    return Batch(
        inputs=after(batch.inputs, task.vocab_size - 1),
        targets=after(batch.targets, IGNORE),
        answers=after(batch.answers, IGNORE),
        groups={name: after(values, 0) if values.ndim == 2 else values for name, values in batch.groups.items()},
    )
