"""Multi-query associative recall (MQAR): pairs of keys and values first, then queries. A control for induction.

One sequence of length 16 with 2 pairs, vocabulary 12 (keys 1..5, values 6..11); a dot is a random token:

    input    2   8   4   7   4   .   .   .   2   .   .   .   .   .   .   .
    role     K   V   K   V   Q               Q
    target                   7               8

In the induction task, every token can be a key and a value. Here keys and values are disjoint, and a value
comes right after its key.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tasks.batch import IGNORE, Batch, in_lines
from tasks.bos import MayHaveBos, batch_with_bos, without_bos
from tasks.config import config, require, require_least
from tasks.memory import draw_seeds
from tasks.registry import register_task


@register_task
@config
class MQARTask(MayHaveBos):
    """Distinct keys, each followed by its value; later each key recurs once as a query, with its value as target.

    Keys are drawn without replacement from 1 .. vocab_size // 2 - 1, values from the upper half of the
    vocabulary. After the pairs, every second position is a slot for a query. Slots are
    numbered g = 1, 2, ... from the end of the pairs. Each key in turn draws a slot without replacement, with
    probability ~ g^(power_a - 1): 1 is uniform, near 0 most queries come early. All other positions hold
    random tokens of the whole vocabulary. Each value is `value_gap` positions after its key.

    `Batch.groups["gap"]` is the gap of each query (metrics slice it by powers of two).

    Source: Arora et al. 2023 (Zoology), arXiv 2312.04927; its Figure 2 has vocabulary 8192 and
    (length, pairs) of (64, 4), (128, 8), (256, 16) and (512, 64).

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1. The upper half are values.
        length: Number of positions in a sequence.
        pairs: Number of key-value pairs in a sequence.
        power_a: Parameter of the distribution of gaps, above 0: 1 is uniform, near 0 most queries come early.
        value_gap: Distance from a key to its value: 1 as in Zoology; above 1, other tokens are between them.
        bos: Begin each sequence with a BOS token, id vocab_size - 1. It counts in vocab_size and length.
    """

    kind: ClassVar[str] = "mqar"

    vocab_size: int = 8192
    length: int = 64
    pairs: int = 4
    power_a: float = 0.01
    value_gap: int = 1
    bos: bool = False

    removed: ClassVar[Mapping[str, object]] = {"fill": "random"}
    """Removed fields, each with the only value that a stored config may still have for it."""

    def __post_init__(self) -> None:
        if self.bos:
            without_bos(self)
        require_least(self, pairs=1, value_gap=1)
        keys = f": pairs={self.pairs} take as many different keys from 1 .. vocab_size // 2 - 1"
        require_least(self, keys, vocab_size=2 * self.pairs + 2)
        places = (
            f": pairs={self.pairs} take {1 + self.value_gap} positions each, and 2 for the query"
        )
        require_least(self, places, length=self._n_front + 2 * self.pairs)
        require(
            0 < self.power_a <= 1,
            f"MQARTask.power_a is {self.power_a}, but must be above 0 and at most 1, where gaps are uniform.",
        )

    @property
    def _n_front(self) -> int:
        """Number of positions that the pairs take."""
        return self.pairs * (1 + self.value_gap)

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`."""
        from tasks.kernels.mqar import draw_rows  # import numba only when sequences are drawn

        if self.bos:
            return batch_with_bos(self, size, rng)
        seeds = draw_seeds(self, size, rng, more=8 * self.vocab_size)
        n_slots = (self.length - self._n_front) // 2
        weights = np.arange(1.0, n_slots + 1) ** (self.power_a - 1)
        inputs, targets, gaps = draw_rows(
            seeds, weights, self.pairs, self.value_gap, self.vocab_size, self.length
        )
        return Batch(inputs=inputs, targets=targets, groups={"gap": gaps})

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, role (K key, V value, Q query), target."""
        asked = batch.targets[row] != IGNORE
        pairs = ["K", *[""] * (self.value_gap - 1), "V"] * self.pairs
        queries = ["Q" if query else "" for query in asked[self.bos + self._n_front :]]
        after = "" if self.value_gap == 1 else f"{self.value_gap} positions "
        note = f"Q repeats a key K; the target is the value V that stands {after}after it. Other tokens mean nothing."
        return in_lines(self, batch, row, note, [""] * self.bos + pairs + queries)
