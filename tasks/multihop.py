"""The multi-hop task of Appendix E.1: follow an induction head's pointer k times, from each letter.

find_1(i) is 1 + the latest j < i with x_j = x_i: the position after the latest earlier occurrence of the
same letter. find_k is find_1 iterated k times. One sequence of length 9
("-" is the symbol "none", "." is "blank"):

    position   0   1   2   3   4   5   6   7   8
    input    k=2   b   a   c   b   a   b   c   a
    find_1                     2   3   5   4   6
    find_2                             3   2   5
    target     .   -   -   -   -   -   c   a   a

From the b at 6, the latest earlier b is at 4: one hop leads to the a at 5. From there the latest
earlier a is at 2: the second hop leads to the c at 3, and c is the answer at 6.
"""

import string
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from tasks.batch import Batch, in_lines
from tasks.config import config, require, require_least
from tasks.memory import draw_seeds
from tasks.registry import register_task


@register_task
@config
class MultiHopTask:
    """A sequence is a number of hops k, then letters. At each letter the answer is the letter k hops back.

    Position 0 holds the hop token, whose id is k: uniform on 0 .. max_hops, one k per sequence. The others hold
    letters, drawn uniformly but never equal to the letter before. The target at position i is the letter
    at find_k(i), or "none" if a hop leads nowhere; at the hop token it is "blank". The training loss scores all
    targets; `Batch.answers` has letters only. `Batch.groups["hops"]` is the k of each sequence.

    Ids: 0 .. max_hops are hop tokens, then come `alphabet` letters, "none" and "blank"; ids from there
    to `vocab_size` are not used.

    With n letters, a of them different, a sequence has n answers for k = 0 and at least n - 1 - (a - 1) k for k > 0;
    exactly this many (97 - 3k by default) unless a chain of hops has run out.

    Source: Sanford et al. 2024, arXiv 2402.09268 (99 positions, 4 letters, k <= 16, 23 symbols);
    arXiv 2411.19574, Appendix E.1, Figure 8.

    Attributes:
        vocab_size: Size of the vocabulary: hop tokens, letters, none and blank.
        length: Number of positions in a sequence, including the hop token.
        max_hops: Largest number of hops.
        alphabet: Number of letters.
    """

    kind: ClassVar[str] = "multihop"

    vocab_size: int = 23
    length: int = 99
    max_hops: int = 16
    alphabet: int = 4

    def __post_init__(self) -> None:
        require_least(self, max_hops=0, alphabet=2)
        symbols = f"{self.max_hops + 1} hop tokens, {self.alphabet} letters, none and blank"
        require_least(self, f": {symbols}", vocab_size=self.blank + 1)
        short = f": in a shorter sequence, max_hops={self.max_hops} hops never end at a letter"
        require_least(self, short, length=self.max_hops + 3)

    @property
    def first_letter(self) -> int:
        """Id of the first letter; the others follow."""
        return self.max_hops + 1

    @property
    def none(self) -> int:
        """Id of the target if a hop leads nowhere."""
        return self.first_letter + self.alphabet

    @property
    def blank(self) -> int:
        """Id of the target at the hop token."""
        return self.none + 1

    @property
    def begins_with(self) -> tuple[int, ...]:
        """The start of a sequence that asks for one hop, which an induction head follows."""
        return (min(1, self.max_hops),)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that are not content: the hop tokens."""
        return tuple(range(self.first_letter))

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`."""
        return self._rows(size, rng, 0, self.max_hops)

    def batch_of(self, hops: int, size: int, rng: np.random.Generator) -> Batch:
        """Draw sequences as `batch` does, all with `hops` hops. For one `rng` the letters do not depend on `hops`.

        Raises `ConfigError` unless 0 <= hops <= max_hops.
        """
        require(
            0 <= hops <= self.max_hops,
            f"hops is {hops}, but must be in 0 .. max_hops={self.max_hops}.",
        )
        return self._rows(size, rng, hops, hops)

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return the text of each id: k=2 for two hops, a letter (its id if there are more than 26), "-" or "."."""
        texts = {self.none: "-", self.blank: "."}
        texts |= {k: f"k={k}" for k in range(self.first_letter)}
        if self.alphabet <= len(string.ascii_lowercase):
            texts |= dict(
                zip(range(self.first_letter, self.none), string.ascii_lowercase, strict=False)
            )
        return [texts.get(i, str(i)) for i in ids.tolist()]

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token and target, with letters as letters."""
        note = (
            "The target is the letter that k hops lead to, - where there is none. A hop from a letter goes\n"
            "to the position after its latest earlier occurrence. The target of k itself is the blank, a dot."
        )
        return in_lines(self, batch, row, note)

    def _rows(self, size: int, rng: np.random.Generator, least_hops: int, most_hops: int) -> Batch:
        from tasks.kernels.multihop import draw_rows  # import numba only when sequences are drawn

        seeds = draw_seeds(self, size, rng, more=8 * self.alphabet * self.length)
        inputs, targets, answers, hops = draw_rows(
            seeds, least_hops, most_hops, self.first_letter, self.alphabet, self.length
        )
        return Batch(inputs=inputs, targets=targets, answers=answers, groups={"hops": hops})
