"""Bigrams of one global table, with triggers whose followers change with the sequence (Bietti et al. 2023).

One sequence of length 12 from a table that says 3 -> 5, 5 -> 1, 1 -> 7 and 7 -> 3; its trigger is 5, followed by 9:

    input     3   5   9   2   3   5   9   4   1   6   5   9
    role      G   G   G   G       T       G   G   G   T
    answer    5   1   0   8       9       6   7   2   9

At G, a token's first occurrence, only the table knows the answer. At T, a repeated trigger, only the sequence does.
"""

from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from tasks.batch import IGNORE, Batch, in_lines
from tasks.config import config, require_least
from tasks.memory import require_memory, require_rows
from tasks.registry import register_task

FOLLOWER_PROBABILITIES = (1 / 2, 1 / 6, 1 / 6, 1 / 6)
"""Probabilities of the four tokens that follow a token in the global table."""
GLOBAL, TRIGGER = 1, 2
"""Values of the group "source": first occurrences (the answer is in the table), repeated triggers (in the sequence)."""


@register_task
@config
class TriggerTask:
    """Bigrams from a global table, except that `triggers` tokens have followers of their own in each sequence.

    After a token x comes one of the four tokens `table[x]`, with `FOLLOWER_PROBABILITIES`. The table is the same in all
    sequences. Each sequence draws `triggers` distinct tokens. A trigger is always followed by the same token there,
    which is drawn among the tokens that are not triggers and not in `table[trigger]`. The first token is uniform.

    `Batch.targets` is the next token everywhere. `Batch.answers` is set where either the table or induction is needed:

    - at the first occurrence of a token, it is the token's most likely follower in the table. Whether the token is a
      trigger can seldom be known yet. `Batch.groups["source"]` is `GLOBAL`.
    - at every later occurrence of a trigger, it is the trigger's follower. The table never has it.
      `Batch.groups["source"]` is `TRIGGER`.

    The fraction of positions that hold a trigger is close to k / (1 + k) with k = triggers / (vocab_size - 1). Over
    many sequences all tokens are equally frequent, so token frequency says nothing about the answer.

    Source: Bietti et al. 2023, "Birth of a Transformer", arXiv 2306.00802, section 3 (random triggers). Their bigram
    probabilities come from a text.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence.
        triggers: Number of triggers in a sequence.
        table_seed: Seed of the table.
    """

    kind: ClassVar[str] = "trigger"

    vocab_size: int = 32
    length: int = 64
    triggers: int = 8
    table_seed: int = 0

    def __post_init__(self) -> None:
        require_least(self, length=3, triggers=1, table_seed=0)
        require_least(
            self,
            f": triggers={self.triggers} need a follower that is no trigger and not in the table",
            vocab_size=self.triggers + len(FOLLOWER_PROBABILITIES) + 1,
        )

    @cached_property
    def table(self) -> Int64[np.ndarray, "token follower=4"]:
        """The followers of every token, the most likely one first. Read-only.

        Each column is a permutation of the tokens, so that no token is more frequent than another.
        """
        require_memory(
            f"A table of {self.vocab_size} tokens (TriggerTask.vocab_size)", 48 * self.vocab_size
        )
        rng, n = np.random.default_rng(self.table_seed), len(FOLLOWER_PROBABILITIES)
        order = rng.permutation(self.vocab_size)
        shifts = 1 + rng.permutation(self.vocab_size - 1)[:n]
        table = np.empty((self.vocab_size, n), dtype=np.int64)
        table[order] = order[(np.arange(self.vocab_size)[:, None] + shifts) % self.vocab_size]
        table.flags.writeable = False
        return table

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences."""
        require_rows(self, size, rng, more=8 * size * self.vocab_size * self.triggers)
        rows, n = np.arange(size), len(FOLLOWER_PROBABILITIES)
        triggers = rng.random((size, self.vocab_size)).argsort(axis=1)[:, : self.triggers]
        is_trigger = np.zeros((size, self.vocab_size), dtype=bool)
        is_trigger[rows[:, None], triggers] = True
        drawn = rng.random((size, self.triggers, self.vocab_size))
        drawn[np.broadcast_to(is_trigger[:, None], drawn.shape)] = -1
        np.put_along_axis(drawn, self.table[triggers], -1, axis=2)
        following = np.tile(self.table, (size, 1, 1))  # [row, token, choice]
        following[rows[:, None], triggers] = drawn.argmax(axis=2)[..., None]

        tokens = np.empty((size, self.length + 1), dtype=np.int64)
        occurred, again = np.zeros_like(is_trigger), np.empty((size, self.length), dtype=bool)
        choices = rng.choice(n, p=FOLLOWER_PROBABILITIES, size=(self.length, size))
        tokens[:, 0] = rng.integers(0, self.vocab_size, size)
        for t in range(self.length):
            now = tokens[:, t]
            again[:, t], occurred[rows, now] = occurred[rows, now], True
            tokens[:, t + 1] = following[rows, now, choices[t]]
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        source = np.where(~again, GLOBAL, np.where(is_trigger[rows[:, None], inputs], TRIGGER, 0))
        answers = np.select(
            [source == GLOBAL, source == TRIGGER], [self.table[inputs, 0], targets], IGNORE
        )
        return Batch(inputs=inputs, targets=targets, answers=answers, groups={"source": source})

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, role (G table, T trigger), answer."""
        roles = [("", "G", "T")[source] for source in batch.groups["source"][row]]
        note = "G is a first occurrence, which the global table answers; T repeats a trigger of this sequence."
        return in_lines(self, batch, row, note, roles, graded="answer")
