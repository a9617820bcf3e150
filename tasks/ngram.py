"""The n-gram task of Appendix E.3: recall from the weights which token follows two others.

One sequence of length 9 at order 3, from a table that holds (5, 2) -> 7, (5, 8) -> 1 and (2, 8) -> 1:

    input    5   8   1   2   8   1   5   2   7
    role    x1  x2  x3  x1  x2  x3  x1  x2  x3
    target       1           1           7

Nothing in the sequence says that 7 follows 5 2: the model must learn the table, which all sequences share.
"""

from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Int64, UInt64

from tasks.batch import IGNORE, Batch, in_lines
from tasks.bos import MayHaveBos, batch_with_bos, without_bos
from tasks.config import config, require, require_least
from tasks.memory import draw_seeds, require_memory
from tasks.registry import register_task


@register_task
@config
class NGramTask(MayHaveBos):
    """Text made of n-grams from a fixed table, with their last tokens as targets.

    The table holds `table_size` distinct contexts of `order` - 1 tokens, each with one last token, all
    uniform on 0 .. vocab_size - 1. It is a pure function of `table_seed` and the sizes, and the same in
    every batch. A sequence is one n-gram of the table after another, cut at `length`. At the last token
    of each context, the target is the n-gram's last token.

    Source: arXiv 2411.19574, Appendix E.3, Figure 9 ("approximately 200 pairs of x1 and x2", order 3).
    The paper does not state the vocabulary. At 64, about three contexts end in the same x2, so x2 alone
    seldom determines x3.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence.
        order: Tokens of an n-gram: a context of order - 1 tokens, and a last token.
        table_size: Number of n-grams in the table.
        table_seed: Seed of the table.
        bos: Begin each sequence with a BOS token, id vocab_size - 1. vocab_size and length include this token.
    """

    kind: ClassVar[str] = "ngram"

    vocab_size: int = 64
    length: int = 63
    order: int = 3
    table_size: int = 200
    table_seed: int = 0
    bos: bool = False

    def __post_init__(self) -> None:
        if self.bos:
            without_bos(self)
        require_least(self, vocab_size=2, order=2, table_size=1, table_seed=0)
        require_least(self, ", the order", length=self.order)
        require(
            self.order < 64
            and self.n_contexts < 2**63,  # computing the power itself can take for ever
            f"NGramTask.order is {self.order}, but vocab_size={self.vocab_size} to the power of order - 1, "
            "the number of contexts, must be below 2 to the power of 63.",
        )
        require(
            self.table_size <= self.n_contexts,
            f"NGramTask.table_size is {self.table_size}, but vocab_size={self.vocab_size} and order={self.order} "
            f"allow only {self.n_contexts} different contexts.",
        )

    @property
    def n_contexts(self) -> int:
        """Number of possible contexts: vocab_size ** (order - 1)."""
        return self.vocab_size ** (self.order - 1)

    @cached_property
    def table(self) -> Int64[np.ndarray, "entry order"]:
        """The n-grams, one per row: a context and its last token. No context occurs twice. Read-only."""
        if self.bos:
            return without_bos(self).table
        drawn_from = (
            self.n_contexts if self.n_contexts < 50 * self.table_size else self.table_size
        )  # in rng.choice
        require_memory(
            f"A table of {self.table_size} n-grams (NGramTask.table_size)",
            8 * (drawn_from + (self.order + 1) * self.table_size),
        )
        rng = np.random.default_rng(self.table_seed)
        number = rng.choice(self.n_contexts, self.table_size, replace=False)
        last = rng.integers(0, self.vocab_size, self.table_size)
        places = self.vocab_size ** np.arange(self.order - 2, -1, -1)
        table = np.column_stack([number[:, None] // places % self.vocab_size, last])
        table.flags.writeable = False
        return table

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of the table and one 64-bit seed taken from `rng`."""
        if self.bos:
            return batch_with_bos(self, size, rng)
        seeds = draw_seeds(self, size, rng)
        n_drawn = -(-self.length // self.order)
        drawn = _draws(seeds, n_drawn, self.table_size)
        inputs = self.table[drawn].reshape(size, n_drawn * self.order)[:, : self.length]
        targets = np.full((size, self.length), IGNORE)
        asked = targets[
            :, self.order - 2 :: self.order
        ]  # a view: where an n-gram's last token is next
        asked[:] = self.table[drawn[:, : asked.shape[1]], -1]
        return Batch(inputs=np.ascontiguousarray(inputs), targets=targets)

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, place in its n-gram (x1, x2, ...), target."""
        roles = [""] * self.bos + [f"x{t % self.order + 1}" for t in range(self.length - self.bos)]
        note = f"x{self.order} is what the table of {self.table_size} n-grams says after x1 .. x{self.order - 1}."
        return in_lines(self, batch, row, note, roles)


def _draws(seeds: UInt64[np.ndarray, " row"], n: int, below: int) -> Int64[np.ndarray, "row n"]:
    """Return n numbers from 0 to `below` - 1 for each seed, as `tasks.random64` draws them, for all seeds at once."""
    z: np.ndarray = seeds[:, None] + 0x9E3779B97F4A7C15 * np.arange(1, n + 1, dtype=np.uint64)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z ^= z >> 31
    return ((z >> 32) * below >> 32).astype(np.int64)
