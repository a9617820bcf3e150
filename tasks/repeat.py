"""Induction at the end of a sequence only: different tokens, then one of them again.

One sequence of length 8:

    input     3  14   7   2  11   9   0   7
    target                                2

7 was followed by 2. No earlier position is scored, so earlier tokens need not attend to others.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tasks.batch import IGNORE, Batch, in_lines
from tasks.config import config, require_least
from tasks.memory import require_rows
from tasks.registry import register_task


@register_task
@config
class RepeatTask:
    """Different tokens in random order, then one of them again. The only target is its follower, at the last position.

    The repeated token is drawn uniformly from all but the last of the different ones, so the answer is equally likely
    to stand at each of the positions 1 .. length - 2. A model that ignores the repeated token, or the order of the
    others, has an accuracy of at most 1 / (length - 2).

    Source: the shortest form of the induction task of arXiv 2411.19574, section 3.2.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence.
    """

    kind: ClassVar[str] = "repeat"

    vocab_size: int = 16
    length: int = 8

    removed: ClassVar[Mapping[str, object]] = {"followers": 1}
    """Removed fields, each with the only value that a stored config may still have for it."""

    def __post_init__(self) -> None:
        require_least(self, length=3)
        different = f": a sequence of length={self.length} has that many different tokens"
        require_least(self, different, vocab_size=self.length - 1)

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences."""
        require_rows(self, size, rng, more=8 * size * self.vocab_size)
        tokens = rng.random((size, self.vocab_size)).argsort(axis=1)[:, : self.length - 1]
        repeated = rng.integers(0, self.length - 2, (size, 1))
        inputs = np.concatenate([tokens, np.take_along_axis(tokens, repeated, axis=1)], axis=1)
        targets = np.full_like(inputs, IGNORE)
        targets[:, -1:] = np.take_along_axis(tokens, repeated + 1, axis=1)
        return Batch(inputs=inputs, targets=targets)

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, target."""
        note = "The last token repeats an earlier one; the target is the token after that one."
        return in_lines(self, batch, row, note)
