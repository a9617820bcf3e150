"""Manipulation of knowledge: expressions in prefix notation modulo a prime, whose tables a model has to learn.

One sequence modulo 7 with 1 to 3 operations and length 16 (ids 0 to 6 are the numbers):

    input    l=2   *   +   3   6   5   =   3 l=1   -   2   6   =   3 l=1   *
    target                             3                       3

(3 + 6) * 5 = 45, which is 3 modulo 7.  2 - 6 = -4, which is 3, too. The last expression is cut off.
"""

from math import isqrt
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from tasks.batch import Batch, in_lines
from tasks.config import config, require
from tasks.memory import require_rows
from tasks.registry import register_task


@register_task
@config
class ManoTask:
    """Expressions of +, - and * in prefix notation, each followed by its result modulo a prime.

    A token gives the number of operations l, which is uniform on 1 .. `max_operations`. The expression after it starts
    with one of the three operations, uniformly. Of the other l - 1 operations, a uniform number on 0 .. l - 1
    belongs to the first operand, the rest to the second, and so on within each operand. An operand without any is a
    uniform number. Then comes "=", where the result is the target. Expressions follow each other until the sequence is
    full; the last one is cut. A long expression is cut more often, so l is not uniform among the scored ones.
    `Batch.groups["operations"]`, int64 [batch, pos], is l at each target (0 elsewhere).

    The modulus is prime, so a product is 0 only if a factor is. 0 is still the most frequent result, as it is the
    product of 0 and any number. Always guessing 0 is right in 0.194 of the results by default. The best
    prediction from l alone has the loss of the entropy of results, which is 1.936 nats (log 7 is 1.946).

    Ids: 0 .. modulus - 1 are numbers, then come +, -, *, "=", and the numbers of operations; ids from there to
    `vocab_size` are not used.

    Source: Allen-Zhu 2025, "Physics of Language Models: Part 4.1", arXiv 2512.17351, the task Mano (modulus 23, up to
    10, 13 or 16 operations); its code is in github.com/facebookresearch/PhysicsLM4. docs/guides/differences.md says
    what differs.

    Attributes:
        vocab_size: Size of the vocabulary: numbers, operations, "=", and numbers of operations.
        length: Number of positions in a sequence.
        modulus: The prime modulo which results are computed.
        max_operations: Largest number of operations of an expression.
    """

    kind: ClassVar[str] = "mano"

    vocab_size: int = 14
    length: int = 32
    modulus: int = 7
    max_operations: int = 3

    def __post_init__(self) -> None:
        prime, most = self.modulus, self.max_operations
        require(most >= 1, f"ManoTask.max_operations is {most}, but must be at least 1.")
        require(
            2 <= prime < 2**31 and all(prime % divisor for divisor in range(2, isqrt(prime) + 1)),
            f"ManoTask.modulus is {prime}, but must be a prime below 2 to the power of 31, such as 7 or 23.",
        )
        least = prime + 4 + most
        require(
            self.vocab_size >= least,
            f"ManoTask.vocab_size is {self.vocab_size}, but must be at least {least}: {prime} numbers (modulus), three "
            f"operations, '=', and {most} numbers of operations (max_operations).",
        )
        require(
            self.length >= 2 * most + 3,
            f"ManoTask.length is {self.length}, but must be at least {2 * most + 3}, which an expression of "
            f"max_operations={most} takes.",
        )

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that are not content: the numbers of operations."""
        return tuple(range(self.modulus + 4, self.modulus + 4 + self.max_operations))

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`."""
        from tasks.kernels.mano import draw_rows  # import numba only when sequences are drawn

        require_rows(self, size, rng)
        seeds = rng.integers(0, 2**64, size, dtype=np.uint64)
        inputs, targets, operations = draw_rows(seeds, self.modulus, self.max_operations, self.length)
        return Batch(inputs=inputs, targets=targets, groups={"operations": operations})

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return the text of each id: l=2 for two operations."""
        first = self.modulus + 4
        return [
            str(i) if i < self.modulus else "+-*="[i - self.modulus] if i < first else f"l={i - first + 1}" for i in ids
        ]

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, target."""
        note = f"Prefix notation: + 1 2 is 1 + 2. The target is the result modulo {self.modulus}."
        return in_lines(self, batch, row, note)
