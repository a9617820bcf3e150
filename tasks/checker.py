"""Check claims about a sequence: did v follow k? The task of the checker of section 3.3 (equation 12).

One sequence of three pairs (K V), then three questions, each at the second token of a pair (2 is the question mark):

    input     17   8  12   5   9  21   2   5  17   8  12  21
    role       K   V   K   V   K   V       R       T       F
    target                                12       1       0

At R the question is which token came before 5: 12. At T the claim is that 17 came before 8, which is true: 1 (yes).
At F the claim is that 12 came before 21, which is false: 0 (no). With asked="first" the questions are at first tokens:

    input     17   8  12   5   9  21   2  12   8  17   8   9
    role       K   V   K   V   K   V       R       T       F
    target                                 5       1       0
"""

from typing import ClassVar, Literal

import numpy as np

from tasks.batch import IGNORE, Batch, in_lines
from tasks.config import config, require, require_least
from tasks.memory import require_rows
from tasks.registry import register_task

NO, YES, ASK = 0, 1, 2
"""Token ids of the two answers to a claim, which are never inputs, and of the question mark."""
RECALL, TRUE, FALSE = 1, 2, 3
"""Values of the group "question"."""


@register_task
@config
class CheckerTask:
    """Pairs of distinct tokens, then a question about each pair at one of its tokens: recall, or a claim to be checked.

    The first half of a sequence is `length` / 4 pairs with distinct ids 3 .. vocab_size - 1. The second half has one
    question of two tokens about each pair, in random order. Its second token is the pair's token `asked`, and the
    answer is due there. Its first token depends on the kind of question:

    - `RECALL`, half of the questions: it is `ASK`. The answer is the pair's other token.
    - `TRUE`, a quarter: it is the pair's other token. The answer is `YES`.
    - `FALSE`, a quarter: it is the other token of the neighbouring pair, the one before if asked="second", the one
      after if asked="first" (the last pair and the first are neighbours). The answer is `NO`.

    `Batch.groups["question"]`, int64 [batch, pos], is the kind of question (0 where nothing is asked).

    With asked="second", a model needs the token before the earlier copy of the current token: equation 12, the value
    shift. With asked="first", it needs the token after that copy: equation 11, the key shift.

    Whether a claim is true depends on both of its tokens together. No rule that reads only one of them, its place, its
    neighbour in another pair or the other questions does better than 1/2 (`tests/tasks/test_checker.py`). In the
    first half, the two tokens have the same order for all true claims, and for all false ones but those about one pair.
    A rule that reads this order is right in 1/2 + 2 / length of the claims. If places say nothing, such a rule exists:
    the mean signed distance is then equal for true and false claims, so some false ones have the reverse order.

    Source: arXiv 2411.19574, section 3.3, which has no experiment.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence, a multiple of four.
        asked: The token of the pair at which the question is asked.
    """

    kind: ClassVar[str] = "checker"

    vocab_size: int = 64
    length: int = 32
    asked: Literal["second", "first"] = "second"

    def __post_init__(self) -> None:
        require(
            self.length >= 8 and self.length % 4 == 0,
            f"CheckerTask.length is {self.length}, but must be a multiple of 4 and at least 8, which makes two pairs.",
        )
        distinct = (
            f"{self.length // 2} distinct tokens, besides the two answers and the question mark"
        )
        least = self.length // 2 + ASK + 1
        require_least(self, f": length={self.length} takes {distinct}", vocab_size=least)

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences."""
        require_rows(self, size, rng, more=8 * size * self.vocab_size)
        half, pairs = self.length // 2, self.length // 4
        body = ASK + 1 + rng.random((size, self.vocab_size - ASK - 1)).argsort(axis=1)[:, :half]
        due_token, other, neighbour = (1, 0, -1) if self.asked == "second" else (0, 1, 1)
        pair = rng.random((size, pairs)).argsort(axis=1)
        question = rng.choice((RECALL, TRUE, FALSE), p=(1 / 2, 1 / 4, 1 / 4), size=(size, pairs))
        due, right, wrong = (
            np.take_along_axis(body[:, token::2], of % pairs, axis=1)
            for token, of in ((due_token, pair), (other, pair), (other, pair + neighbour))
        )
        inputs = np.empty((size, self.length), np.int64)
        targets = np.full((size, self.length), IGNORE)
        inputs[:, :half] = body
        inputs[:, half::2] = np.choose(question - 1, (np.full_like(right, ASK), right, wrong))
        inputs[:, half + 1 :: 2] = due
        targets[:, half + 1 :: 2] = np.choose(
            question - 1, (right, np.full_like(right, YES), np.full_like(right, NO))
        )
        questions = np.zeros_like(inputs)
        questions[:, half + 1 :: 2] = question
        return Batch(inputs=inputs, targets=targets, groups={"question": questions})

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, role, target."""
        asked = [("", "R", "T", "F")[question] for question in batch.groups["question"][row]]
        half = self.length // 2
        note = "K V is a pair. R: what was beside this token? T, F: was the token before it beside it? 1 is yes, 0 no."
        return in_lines(self, batch, row, note, [*"KV" * (half // 2), *asked[half:]])
