"""Decide which sequences keep the answer to a question: by the task's rule, or as sequences that
the task could draw.

A question is the last token of a sequence, the query.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from ihlab.measure.probe import task_tokens
from tasks import InductionTask, MultiHopTask, NGramTask
from tasks.bos import without_bos
from tasks.config import require, shown

Tokens = Int[np.ndarray, "batch pos"]
Verdicts = Bool[np.ndarray, " batch"]


@dataclass(frozen=True)
class Rule:
    """The rule of most tasks: the query repeats, and one token has always followed it.

    - `task`: without its BOS token, which is not among the tokens that the methods take;
    - `begin`: the number of first tokens that are always the same, such as the BOS token;
    - `words`: the tokens that may be written.
    """

    task: Any
    begin: int
    words: Int[np.ndarray, " word"]

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


def rule_for(task: Any, support: str) -> Rule:
    """Return the rule of a task. Raises `ConfigError` for support="task" if it is not known what
    the task draws, and for tasks whose answers do not follow an earlier query: several hops, and
    n-grams.
    """
    require(
        not isinstance(task, MultiHopTask | NGramTask),
        f"The task is {shown(task.kind)}, but attack has no rule for it: its answers need not follow the query.",
    )
    known = type(task) is InductionTask and task.period is None
    require(
        known or support == "any",
        f"support is 'task', but it is not known which sequences the task {shown(task.kind)} can draw, only that of "
        "induction without period: support='any' takes all sequences in which one token has always followed the query.",
    )
    if not known:
        tokens = task_tokens(task)
        return Rule(task, len(tokens.begin), np.array(tokens.content))
    plain = without_bos(task) if task.bos else task
    return InductionRule(plain, int(task.bos), np.arange(plain.min_token, plain.vocab_size))
