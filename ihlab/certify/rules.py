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
from tasks import InductionTask, MQARTask, MultiHopTask, NGramTask, PairTask, RepeatTask
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
      of the width;
    - `context`: the number of last tokens that must repeat; `gap`: the distance from the query's
      earlier occurrence to the answer.
    """

    task: Any
    begin: int
    words: Int[np.ndarray, "word width"]
    context: int = 1
    gap: int = 1

    copies: ClassVar[bool] = True
    """Whether the answer stands in the sequence."""

    def located(self, tokens: Int[np.ndarray, " pos"]) -> Sequence[int] | None:
        """Return the positions that carry the question. The last two are the query's earlier
        occurrence and the answer.

        Return None if the query has not occurred before.
        """
        first = int(self._repeats(tokens[None])[0].argmax())
        carry = [*range(first - self.context + 1, first + 1), first + self.gap]
        return carry if self._repeats(tokens[None])[0, first] and carry[-1] < len(tokens) else None

    def asking(self, length: int) -> Sequence[int]:
        """Return the positions of a sequence that say which question it asks. Every other token may
        change.
        """
        return range(length - self.context, length)

    def right(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """Return whether the answer has followed every earlier occurrence of the query, and no
        other token.
        """
        follower = np.pad(tokens[:, self.gap :], ((0, 0), (0, self.gap)), constant_values=-1)
        repeats = self._repeats(tokens)
        return repeats.any(axis=1) & (~repeats | (follower == answer[:, None])).all(axis=1)

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts | None:
        """Return whether the task could draw these tokens and then this answer; None if that is not
        known.
        """
        return None

    def _repeats(self, tokens: Tokens) -> Bool[np.ndarray, "batch pos"]:
        """Return the positions before the last where the last `context` tokens stand."""
        equal = np.ones(tokens.shape, bool)
        for back in range(self.context):
            equal[:, back:] &= tokens[:, : tokens.shape[1] - back] == tokens[:, [-1 - back]]
            equal[:, :back] = False
        equal[:, -1] = False
        return equal


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


class RepeatRule(Rule):
    """All tokens but the last are different, and the last does not repeat the one before
    (`tasks.repeat`).
    """

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """See `Rule.drawable`."""
        different = (np.diff(np.sort(tokens[:, :-1], axis=1)) != 0).all(axis=1)
        immediate = tokens[:, -2] == tokens[:, -1]
        return (
            self.right(tokens, answer)
            & different
            & ~immediate
            & (tokens.shape[1] == self.task.length)
        )


class RecallRule(Rule):
    """Pairs of keys and values, then queries; all other tokens are fillers (`tasks.mqar`).

    The task also draws sequences in which the query's key occurs by chance with another token after
    it. They are left out here, because their answer is not clear.
    """

    def drawable(self, tokens: Tokens, answer: Int[np.ndarray, " batch"]) -> Verdicts:
        """See `Rule.drawable`. Every key needs a slot for its query, before the last token or
        later.
        """
        task, width = self.task, 1 + self.task.value_gap
        front, half = task.pairs * width, task.vocab_size // 2
        pairs, later, query = tokens[:, :front], tokens[:, front:-1], tokens[:, -1:]
        keys, values = pairs[:, ::width], pairs[:, self.gap :: width]
        legal = self.right(tokens, answer) & ((keys == query) & (values == answer[:, None])).any(
            axis=1
        )
        for ids, low, high in ((keys, 1, half), (values, half, task.vocab_size)):
            legal &= (np.diff(np.sort(ids, axis=1)) != 0).all(axis=1) & (
                (ids >= low) & (ids < high)
            ).all(axis=1)
        slots = later[:, ::2]
        asked = (slots[:, None] == keys[:, :, None]).sum(axis=2)  # [batch, key]
        missing = ((asked == 0) & (keys != query)).sum(axis=1)
        legal &= missing <= (task.length - front) // 2 - (1 + later.shape[1] // 2)
        if task.fill == "blank":
            legal &= (later[:, 1::2] == 0).all(axis=1) & (
                (slots != 0).sum(axis=1) == asked.sum(axis=1)
            )
            legal &= (asked <= (keys != query)).all(axis=1)
            for between in range(1, task.value_gap):
                legal &= (pairs[:, between::width] == 0).all(axis=1)
        return legal & (later.shape[1] % 2 == 0)


class HopRule(Rule):
    """No two neighbours are equal, and the answer is the letter that the hops lead to
    (`tasks.multihop`).
    """

    def located(self, tokens: Int[np.ndarray, " pos"]) -> Sequence[int] | None:
        """See `Rule.located`: the hop token, and two positions for each hop."""
        hop = self._hop(tokens[None])[0]
        carry, place = [0], len(tokens) - 1
        for _ in range(int(tokens[0])):
            place = int(hop[place])
            carry += [place - 1, place]
        return carry if place > 0 else None

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

    def located(self, tokens: Int[np.ndarray, " pos"]) -> Sequence[int]:
        """See `Rule.located`: the context, which ends in the query."""
        return range(len(tokens) - self.task.order + 1, len(tokens))

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
    RepeatTask: RepeatRule,
    MQARTask: RecallRule,
    MultiHopTask: HopRule,
    NGramTask: TableRule,
}
"""The rules of the tasks for which it is known which sequences they draw."""


def rule_for(task: Any, support: str) -> Rule:
    """Return the rule of a task. Raises `ConfigError` for support="task" if it is not known what
    the task draws.
    """
    known = RULES.get(type(task))
    require(
        known is not None or support == "any",
        f"support is 'task', but it is not known which sequences the task {shown(task.kind)} can draw, only that of "
        f"{', '.join(sorted(each.kind for each in RULES))}: support='any' takes all sequences in which one token has "  # type: ignore[attr-defined]
        "always followed the query.",
    )
    if known is None:
        tokens = task_tokens(task)
        context = 2 if isinstance(task, PairTask) else 1
        return Rule(task, len(tokens.begin), np.array(tokens.content)[:, None], context)
    begin = int(getattr(task, "bos", False))
    task = without_bos(task) if begin else task
    low = getattr(task, "first_letter", getattr(task, "min_token", 0))
    words = np.arange(low, getattr(task, "none", task.vocab_size))[:, None]
    if support == "task" and isinstance(task, NGramTask):
        words = task.table
    return known(task, begin, words, gap=getattr(task, "value_gap", 1))
