"""The induction task of section 3.2 and Appendix K: a repeated token has the same follower as before.

One sequence of length 11 (score="all"; R repeats an earlier token, F is forced to follow it):

    input     88  74  40  88  74  66  40  88  33  65  21
    role                   R   F       R   F
    target                74          88

The first 88 was followed by 74. When 88 repeats, 74 is the only right answer, and it is put there. The
forced 74 is a repeat as well, but it was not *drawn*, so it is not scored. 74 has now been followed by
40 and by 66. If it were drawn again, it would have no single answer and would not be scored either.

A token drawn right after itself is not scored and forces nothing: only itself has followed its earlier occurrence,
so a model that repeats its own token would be right. It still counts as the follower of that occurrence:
after 21 21 65, the next 21 has been followed by two tokens and is not scored.
"""

from typing import ClassVar, Literal

import numpy as np

from tasks.batch import IGNORE, Batch, in_lines
from tasks.bos import MayHaveBos, batch_with_bos, without_bos
from tasks.config import config, require, require_least
from tasks.memory import draw_seeds, require_rows
from tasks.registry import register_task


@register_task
@config
class InductionTask(MayHaveBos):
    """Random tokens in which a scored repeat has the same follower as every earlier occurrence of its token.

    A sequence draws a pool of `length` distinct ids from `min_token .. vocab_size - 1`. At each step a
    pool member is drawn uniformly and appended. If it occurred before, though not right before, and every
    earlier occurrence was followed by the same token, that token is appended as well, and the position of
    the repeat is scored: at each such t there is an i <= t - 2 with x_i = x_t, and for every such i the
    answer is x_{i+1}. Sequences without an answer are redrawn.

    `Batch.answers` holds all answers, whatever `score` is. `Batch.groups["gap"]`, int64 [batch, pos], is the distance
    t - i >= 2 of each answer from the latest such i (0 where there is no answer).

    Source: arXiv 2411.19574, section 3.2 and Appendix K (ids 11..7999, length 512). The printed
    listing overwrites a token's follower when it reappears and can emit -1; this rule does neither.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence.
        score: Targets of the training loss. all: all answers; first: only the first answer of a sequence (the position
            that the paper's listing returns); tokens: the next token at every position.
        min_token: Lowest id that is drawn.
        bos: Begin each sequence with a BOS token, id vocab_size - 1. It counts in vocab_size and length.
        period: Repeat that many distinct tokens in order, such as 2 for 5 9 5 9 5 9. Each repeat is scored, and its gap
            is the period. None: repeats are drawn by the rule above.
        score_immediate: Also score a token drawn right after itself: its answer is itself, at a gap of 1. Then i may be
            t - 1, and a shortcut exists: predicting the current token is right at these positions.
    """

    kind: ClassVar[str] = "induction"
    rule: ClassVar[int] = 2
    """The version of the rule above, stored with every run. Under rule 1 a token drawn right after itself was scored
    too: in sequences of 32 tokens, a fifth of the first repeats needed no induction."""

    vocab_size: int = 8000
    length: int = 512
    score: Literal["all", "first", "tokens"] = "all"
    min_token: int = 11
    bos: bool = False
    period: int | None = None
    score_immediate: bool = False

    def __post_init__(self) -> None:
        if self.bos:
            without_bos(self)
        require_least(self, length=3, min_token=0)
        most = 2**31  # tokens are drawn in 32 bits
        require(
            self.vocab_size <= most,
            f"InductionTask.vocab_size is {self.vocab_size}, but must be at most {most}.",
        )
        require(
            self.period is None or 2 <= self.period < self.length,
            f"InductionTask.period is {self.period}, but must be at least 2 and below the length, {self.length}.",
        )
        distinct = self.period or self.length
        require_least(
            self,
            f": a sequence draws {distinct} distinct ids from min_token={self.min_token} up, which may be 0",
            vocab_size=distinct + self.min_token,
        )

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`; with `period`, of several
        numbers.
        """
        from tasks.kernels.induction import draw_rows  # import numba only when sequences are drawn

        if self.bos:
            return batch_with_bos(self, size, rng)
        if self.period is None:
            seeds = draw_seeds(self, size, rng, more=8 * (self.vocab_size - self.min_token))
            tokens, answers, gaps = draw_rows(
                seeds, self.min_token, self.vocab_size, self.length, self.score_immediate
            )
        else:
            tokens, answers, gaps = self._periodic(size, self.period, rng)
        inputs, following = tokens[:, :-1], tokens[:, 1:]
        if self.score == "all":
            targets = answers
        elif self.score == "first":
            targets = _only_first(answers)
        else:
            targets = following
        return Batch(inputs=inputs, targets=targets, answers=answers, groups={"gap": gaps})

    def _periodic(
        self, size: int, period: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw periodic tokens [size, length + 1], and the answers and gaps [size, length] of all repeats."""
        drawable = self.vocab_size - self.min_token
        require_rows(self, size, rng, more=8 * size * drawable)
        pool = self.min_token + rng.random((size, drawable)).argsort(axis=1)[:, :period]
        tokens = pool[:, np.arange(self.length + 1) % period]
        repeat = np.arange(self.length) >= period
        return (
            tokens,
            np.where(repeat, tokens[:, 1:], IGNORE),
            np.tile(np.where(repeat, period, 0), (size, 1)),
        )

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, role (R repeat, F forced), target."""
        repeat = batch.answers[row] != IGNORE
        forced = np.concatenate([[False], repeat[:-1]])
        roles = np.where(repeat, "R", np.where(forced, "F", ""))
        note = "R repeats an earlier token whose follower was always the same; F is that follower, forced."
        return in_lines(self, batch, row, note, roles.tolist())


def _only_first(answers: np.ndarray) -> np.ndarray:
    rows = np.arange(len(answers))
    first = (answers != IGNORE).argmax(axis=1)
    targets = np.full_like(answers, IGNORE)
    targets[rows, first] = answers[rows, first]
    return targets
