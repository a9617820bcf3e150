"""Sequences that begin with a beginning-of-sequence token: a position without content that a head can attend to.

Tasks with a field `bos` use this module. The token has the last id and the first position; `vocab_size` and `length`
include it. After it comes a sequence of the same task without the token.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from tasks.batch import IGNORE, Batch
from tasks.config import ConfigError


class MayHaveBos:
    """Mixin of tasks with a field `bos`: it defines `begins_with`."""

    @property
    def begins_with(self: Any) -> tuple[int, ...]:
        """The ids at the start of every sequence."""
        return (self.vocab_size - 1,) if self.bos else ()


def without_bos(task: Any) -> Any:
    """Return the task without BOS, which has one id and one position fewer. Raises `ConfigError` if it is too small."""
    try:
        return replace(task, bos=False, vocab_size=task.vocab_size - 1, length=task.length - 1)
    except ConfigError as error:
        name = type(task).__name__
        message = f"{error} ({name}.bos is True: the token takes one id of vocab_size and one position of length.)"
        raise ConfigError(message) from None


def batch_with_bos(task: Any, size: int, rng: np.random.Generator) -> Batch:
    """Draw sequences of `without_bos(task)` and prepend the BOS token, which is not scored and has group 0."""
    batch = without_bos(task).batch(size, rng)

    def after(values: np.ndarray, first: int) -> np.ndarray:
        return np.insert(values, 0, first, axis=1)

    return Batch(
        inputs=after(batch.inputs, task.vocab_size - 1),
        targets=after(batch.targets, IGNORE),
        answers=after(batch.answers, IGNORE),
        groups={name: after(values, 0) for name, values in batch.groups.items()},
    )
