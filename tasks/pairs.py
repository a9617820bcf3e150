"""Induction on two tokens: what followed the last two, in this order? The last token alone does not determine it.

One sequence of length 24 with 3 letters, 0 to 2, and followers from 8 up. After the six contexts come two queries:

    input     0   2   9   2   1  12   1   0   8   0   1  15   1   2  11   2   0  14   1   0   8   2   1  12
    role      a   b   f   a   b   f   a   b   f   a   b   f   a   b   f   a   b   f   a   b       a   b
    target                                                                                8          12

1 0 was followed by 8. The last letter alone leaves 8 and 14 (after 2 0). Both letters in any order leave 8 and 15.
"""

from typing import ClassVar

import numpy as np

from tasks.batch import IGNORE, Batch, in_lines
from tasks.config import config, require_least
from tasks.memory import require_rows
from tasks.registry import register_task


@register_task
@config
class PairTask:
    """Contexts of two letters, each with its follower in this sequence; then queries, whose answers are followers.

    Letters are 0 .. vocab_size // 2 - 1, followers are the other ids. A sequence draws `letters` letters. Each of its
    letters * (letters - 1) contexts, the ordered pairs of different letters, gets a follower. Contexts with the same
    last letter get different ones. The sequence holds all contexts in random order, each with its follower, and then
    queries, which are contexts drawn independently, also with their followers. It is cut at `length`. The target is
    the follower, at the last letter of each query.

    No two neighbours are equal. A model that reads the whole sequence, but only the last letter of the query, has an
    accuracy of 1 / (letters - 1), because queries are drawn independently of everything before them.

    Source: arXiv 2411.19574, whose section 5 mentions "n-gram induction heads". The task is ours.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1. The upper half are followers.
        length: Number of positions in a sequence.
        letters: Number of different letters in a sequence.
    """

    kind: ClassVar[str] = "pairs"

    vocab_size: int = 16
    length: int = 72
    letters: int = 4

    def __post_init__(self) -> None:
        require_least(self, ": a context has 2 different letters", letters=2)
        half = f": half of the ids are letters, and a sequence has letters={self.letters} of them"
        require_least(self, half, vocab_size=2 * self.letters)
        after = f": the first query ends there, after the contexts of letters={self.letters}"
        require_least(self, after, length=self.first_query + 2)

    @property
    def first_query(self) -> int:
        """Position of the first query, after all contexts with their followers."""
        return 3 * self.letters * (self.letters - 1)

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences."""
        require_rows(self, size, rng, more=8 * size * self.letters * self.vocab_size)
        n, half = self.letters, self.vocab_size // 2
        first, last = np.nonzero(~np.eye(n, dtype=bool))
        letters = _distinct(rng, (size,), half, n)
        # [row, last letter, rank of first]
        followers = half + _distinct(rng, (size, n), self.vocab_size - half, n - 1)
        following = followers[:, last, first - (first > last)]
        contexts = np.stack([letters[:, first], letters[:, last], following], axis=2)

        queries = -(-(self.length - self.first_query) // 3)
        asked = rng.integers(0, len(first), (size, queries))
        order = np.concatenate([_distinct(rng, (size,), len(first), len(first)), asked], axis=1)
        inputs = np.take_along_axis(contexts, order[..., None], axis=1).reshape(
            size, 3 * order.shape[1]
        )
        targets = np.full_like(inputs, IGNORE)
        targets[:, self.first_query + 1 :: 3] = inputs[:, self.first_query + 2 :: 3]
        inputs, targets = (np.ascontiguousarray(x[:, : self.length]) for x in (inputs, targets))
        return Batch(inputs=inputs, targets=targets)

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, role (a b context, f follower), target."""
        roles = ["abf"[t % 3] for t in range(self.length)]
        asked = [
            role if t < self.first_query or role != "f" else "" for t, role in enumerate(roles)
        ]
        note = "The target is the token that followed the two letters a b in this order."
        return in_lines(self, batch, row, note, asked)


def _distinct(rng: np.random.Generator, shape: tuple[int, ...], below: int, n: int) -> np.ndarray:
    """Return n distinct numbers below `below`, in random order, along a new last axis."""
    return rng.random((*shape, below)).argsort(axis=-1)[..., :n]
