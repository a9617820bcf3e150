"""Depth: walk k steps along a permutation that is given as pairs in random order.

One sequence with 4 names (5 to 9), up to 3 hops and length 18 (a dot is padding):

    input    bos   9   5   7   9   5   6   6   7 k=2   7   5 k=1   6   7 k=3   5   9
    role           x   y   x   y   x   y   x   y       q   a       q   a       q   a
    target                                             5           7           9

y is the successor of x: 7 -> 9 -> 5 -> 6 -> 7. Two steps from 7 lead to 5.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from tasks.batch import Batch, in_lines
from tasks.config import config, require_least
from tasks.memory import draw_seeds
from tasks.registry import register_task


@register_task
@config
class DepoTask:
    """All pairs (name, successor) of one cycle of names in random order, then queries: which name is k steps further?

    A sequence draws `names` different names and their order on the cycle. A name is one token. After the token "bos"
    come the pairs. Then come queries as long as they fit, each about another name: the token of k, uniform on
    1 .. `max_hops`, the name, and the answer, which is the target. `Batch.groups["hops"]`, int64 [batch, pos], is k at
    each target (0 elsewhere).

    Ids: 0 is padding, 1 .. max_hops are the numbers of hops, then comes "bos"; the other ids are names.

    Guessing any name except the query's has an accuracy of 1 / (names - 1), and a loss of log(names - 1), at the first
    answer of a sequence. For later answers, the earlier ones exclude a few names.

    Source: Allen-Zhu 2025, "Physics of Language Models: Part 4.1", arXiv 2512.17351, the task Depo; its code is in
    github.com/facebookresearch/PhysicsLM4. docs/guides/differences.md says what differs.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence.
        names: Number of names in a sequence, above max_hops.
        max_hops: Largest number of hops of a query.
    """

    kind: ClassVar[str] = "depo"
    padding_id: ClassVar[int] = 0

    vocab_size: int = 16
    length: int = 31
    names: int = 6
    max_hops: int = 3

    removed: ClassVar[Mapping[str, object]] = {"name_length": [1, 1]}
    """Removed fields, each with the only value that a stored config may still have for it."""

    def __post_init__(self) -> None:
        require_least(self, max_hops=1)
        require_least(self, ", so that no walk returns to its start", names=self.max_hops + 1)
        ids = f": names={self.names}, {self.max_hops} numbers of hops, padding and bos"
        require_least(self, ids, vocab_size=self.names + self.max_hops + 2)
        positions = f": names={self.names} take 2 positions per pair, and a query takes 3"
        require_least(self, positions, length=2 * self.names + 4)

    @property
    def begins_with(self) -> tuple[int, ...]:
        """The id at the start of every sequence, "bos"."""
        return (self.max_hops + 1,)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that are not tokens of names: padding, numbers of hops and "bos"."""
        return tuple(range(self.max_hops + 2))

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`."""
        from tasks.kernels.depo import draw_rows  # import numba only when sequences are drawn

        seeds = draw_seeds(self, size, rng)
        n_ids = self.vocab_size - self.max_hops - 2
        inputs, targets, hops = draw_rows(seeds, self.names, self.max_hops, n_ids, self.length)
        return Batch(inputs=inputs, targets=targets, groups={"hops": hops})

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return the text of each id: a dot for padding, k=2 for two hops, "bos", and a number for a name."""
        special = [".", *(f"k={k}" for k in range(1, self.max_hops + 1)), "bos"]
        texts = dict(enumerate(special))
        return [texts.get(i, str(i)) for i in ids.tolist()]

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, target."""
        note = "Pairs of a name and its successor, then queries: the target is the name k successors after the query's."
        return in_lines(self, batch, row, note)
