"""Decide which sequences keep the answer to a question: by the task's rule, or as sequences that
the task could draw.

A question is the last token of a sequence, the query. `RULES` has the tasks whose drawable
sequences are known exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from ihlab.interp.multihop import find_hops
from ihlab.measure.probe import task_tokens
from tasks import InductionTask, MultiHopTask, NGramTask
from tasks.bos import without_bos
from tasks.config import require, shown

Tokens = Int[np.ndarray, "batch pos"]
Verdicts = Bool[np.ndarray, " batch"]


@dataclass(frozen=True)
class Rule:
    """The rule of every task that has none in `RULES`: the query repeats, and one token has always
    followed it.

    - `task`: without its BOS token, which is not among the tokens that the methods take;
    - `begin`: the number of first tokens that are always the same, such as the BOS token;
    - `words` [word, width]: tokens, or groups of tokens, to write at positions that are multiples
      of the width.
    """

    task: Any
    begin: int
    words: Int[np.ndarray, "word width"]

    copies: ClassVar[bool] = True
    """Whether the answer stands in the sequence."""

    def located(self, tokens: Int[np.ndarray, " pos"]) -> tuple[int, int]:
        """Return the positions of the query's earlier occurrence and of the answer after it, in a
        sequence that is right.
        """
        first = int((tokens == tokens[-1]).argmax())
        return first, first + 1

    def asking(self, length: int) -> Sequence[int]:
        """Return the positions of a sequence that say which question it asks. Every other token may
        change.
        """
        return [length - 1]

    def right(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """Return whether the answer has followed every earlier occurrence of the query, and no
        other token.
        """
        repeats = tokens[:, :-1] == tokens[:, -1:]
        right = ~repeats | (tokens[:, 1:] == answer[:, None])
        return repeats.any(axis=1) & right.all(axis=1)

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts | None:
        """Return whether the task could draw these tokens and then this answer; None if that is not
        known.
        """
        return None


class InductionRule(Rule):
    """A drawn token that occurred before is followed by the same token as before
    (`tasks.induction`).
    """

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """See `Rule.drawable`. It reads tokens in the order of drawing: a forced token forces no
        token after it.
        """
        legal = self.right(tokens, answer) & (tokens >= self.task.min_token).all(axis=1)
        if self.task.period is not None:
            first, period = np.sort(tokens[:, : self.task.period], axis=1), self.task.period
            return (
                legal
                & (np.diff(first) != 0).all(axis=1)
                & (tokens[:, period:] == tokens[:, :-period]).all(axis=1)
            )
        n, n_pos = tokens.shape
        forced = np.zeros(n, bool)
        for t in range(1, n_pos):
            before = tokens[:, :t] == tokens[:, [t]]
            followers = np.where(before, tokens[:, 1 : t + 1], -1)
            follower = followers.max(axis=1)
            single = before.any(axis=1) & (~before | (followers == follower[:, None])).all(axis=1)
            immediate = before[:, -1] & (not self.task.score_immediate)
            forces = single & ~forced & ~immediate
            if t < n_pos - 1:
                legal &= ~forces | (tokens[:, t + 1] == follower)
            forced = forces
        return legal & forced


class HopRule(Rule):
    """No two neighbours are equal, and the answer is the letter that the hops lead to
    (`tasks.multihop`).
    """

    def located(self, tokens: Int[np.ndarray, " pos"]) -> tuple[int, int]:
        """See `Rule.located`: the place from which the last hop leads, and where it leads to."""
        [hop], place = self._hop(tokens[None]), len(tokens) - 1
        for _ in range(int(tokens[0])):
            place = int(hop[place])
        return place - 1, place

    def asking(self, length: int) -> Sequence[int]:
        """See `Rule.asking`: the number of hops and the last letter."""
        return [0, length - 1]

    def right(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """Return whether at least one hop leads from the last letter to the answer."""
        hop, rows = self._hop(tokens), np.arange(len(tokens))
        place = np.full(len(tokens), tokens.shape[1] - 1)
        for done in range(self.task.max_hops):
            place = np.where(done < tokens[:, 0], hop[rows, place], place)
        return (tokens[:, 0] > 0) & (place > 0) & (tokens[rows, place] == answer)

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """See `Rule.drawable`."""
        letters = np.isin(tokens[:, 1:], self.words).all(axis=1) & (
            tokens[:, 0] <= self.task.max_hops
        )
        return self.right(tokens, answer) & letters & (np.diff(tokens) != 0).all(axis=1)

    @staticmethod
    def _hop(tokens: Tokens) -> Int[np.ndarray, "batch pos"]:
        """Return the position one after the latest earlier occurrence of each token; 0 if there is
        none.
        """
        return np.pad(find_hops(tokens[:, 1:], 1)[1] + 1, ((0, 0), (1, 0)))


class TableRule(Rule):
    """N-grams of a table, one after another (`tasks.ngram`)."""

    copies: ClassVar[bool] = False

    def located(self, tokens: Int[np.ndarray, " pos"]) -> tuple[int, int]:
        """Return the last two positions: the answer stands nowhere."""
        return len(tokens) - 2, len(tokens) - 1

    def asking(self, length: int) -> Sequence[int]:
        """See `Rule.asking`: the context."""
        return range(length - self.task.order + 1, length)

    def right(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """Return whether the table says that the answer follows the last tokens."""
        return self._in_table(
            np.column_stack([tokens[:, tokens.shape[1] - self.task.order + 1 :], answer])
        )

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """See `Rule.drawable`."""
        order, legal = self.task.order, self.right(tokens, answer)
        for start in range(0, tokens.shape[1] - order + 1, order):
            legal &= self._in_table(tokens[:, start : start + order])
        return legal & (tokens.shape[1] % order == order - 1)

    def _in_table(self, grams: Int[np.ndarray, "batch order"]) -> Verdicts:
        equal = [
            token[:, None] == entry for token, entry in zip(grams.T, self.task.table.T, strict=True)
        ]
        return np.logical_and.reduce(equal).any(axis=1)


RULES: dict[type, type[Rule]] = {
    InductionTask: InductionRule,
    MultiHopTask: HopRule,
    NGramTask: TableRule,
}
"""The rules of the tasks for which it is known which sequences they draw."""


def rule_for(task: Any, support: str) -> Rule:
    """Return the rule of a task. Raises `ConfigError` for support="task" if it is not known what
    the task draws.
    """
    known = RULES.get(type(task))
    covered = ", ".join(sorted(each.kind for each in RULES))  # type: ignore[attr-defined]
    require(
        known is not None or support == "any",
        f"support is 'task', but it is not known which sequences the task {shown(task.kind)} can draw, only that of "
        f"{covered}: support='any' takes all sequences in which one token has always followed the query.",
    )
    if known is None:
        tokens = task_tokens(task)
        return Rule(task, len(tokens.begin), np.array(tokens.content)[:, None])
    begin = int(getattr(task, "bos", False))
    task = without_bos(task) if begin else task
    low = getattr(task, "first_letter", getattr(task, "min_token", 0))
    words = np.arange(low, getattr(task, "none", task.vocab_size))[:, None]
    if support == "task" and isinstance(task, NGramTask):
        words = task.table
    return known(task, begin, words)
