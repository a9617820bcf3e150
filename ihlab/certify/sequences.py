"""Sets of sequences that end in a question, as automata: a proof holds for every sequence of such a
set.

An automaton reads a sequence from its first token to the token before the query. What may follow a
token depends on the state after it: each pair of a state and a token has a *rule*, and the rule
gives the state after each next token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from ihlab.certify.walks import Question
from tasks import InductionTask
from tasks.config import ConfigError, require, require_integer, shown

FORBIDDEN = -1
"""The state after a token that may not come here."""
_KINDS = {"b": "bools", "iu": "whole numbers"}
SENTENCE = "whose last token has come before, always followed by one and the same other token"


@dataclass(frozen=True, eq=False)
class Sequences:
    """All sequences that end in `query` and have one right answer. Tokens are numbered as in
    `alphabet`.

    - `alphabet`: the ids of the tokens that may occur;
    - `query`, `answer`: ids;
    - `first`: the state after each token as the first of a sequence, or `FORBIDDEN`;
    - `rule`: the rule of each state and token;
    - `follow`: the state that each rule gives after each next token, or `FORBIDDEN`;
    - `asks`: for each state, whether the sequence may end here with the query;
    - `sentence`: which sequences these are, in words that follow "every sequence of 3 tokens over
      16 ids". A verdict on your own automata quotes it.

    Raises `ConfigError` for arrays that do not fit each other.
    """

    alphabet: Int[np.ndarray, " token"]
    query: int
    answer: int
    first: Int[np.ndarray, " token"]
    rule: Int[np.ndarray, "state token"]
    follow: Int[np.ndarray, "rule token"]
    asks: Bool[np.ndarray, " state"]
    sentence: str = "of your own set"

    def __post_init__(self) -> None:
        for name in ("alphabet", "first", "rule", "follow", "asks"):
            kind, wanted = (bool, "b") if name == "asks" else (np.int64, "iu")
            given = np.array(getattr(self, name), ndmin=1)
            require(
                given.dtype.kind in wanted,
                f"Sequences.{name} is {shown(given)}, but must be an array of {_KINDS[wanted]}.",
            )
            own = given.astype(kind)
            own.flags.writeable = False  # compiled code reads it without looking at its bounds
            object.__setattr__(self, name, own)
        ids, n_states, n_rules = self.alphabet, len(self.rule), len(self.follow)
        ascending = (
            ids.ndim == 1 and len(ids) > 0 and ids[0] >= 0 and bool((np.diff(ids) > 0).all())
        )
        require(
            ascending,
            f"Sequences.alphabet is {shown(ids.tolist())}, but must be different ids in ascending order.",
        )
        for name in ("query", "answer"):
            token = getattr(self, name)
            require_integer(f"Sequences.{name}", token, 0)
            require(
                token in ids,
                f"Sequences.{name} is {token}, which is not in the alphabet {shown(ids.tolist())}.",
            )
        limits = {
            "first": ((len(ids),), FORBIDDEN, n_states),
            "rule": ((n_states, len(ids)), 0, n_rules),
            "follow": ((n_rules, len(ids)), FORBIDDEN, n_states),
            "asks": ((n_states,), 0, 2),
        }
        for name, (shape, low, stop) in limits.items():
            array = getattr(self, name)
            require(
                array.shape == shape,
                f"Sequences.{name} has the shape {array.shape}, but must have {shape}.",
            )
            inside = bool(((array >= low) & (array < stop)).all())
            require(inside, f"Sequences.{name} has numbers that are not from {low} to {stop - 1}.")

    @property
    def question(self) -> Question:
        """The arrays, as compiled code takes them."""
        query = int(np.searchsorted(self.alphabet, self.query))
        return Question(self.first, self.rule, self.follow, self.asks, query, self.answer)

    def ways(self, longest: int) -> list[np.ndarray]:
        """Return the exact number of ways to end 1, 2, .., longest - 1 tokens after a token, each
        [state, token].

        The last row belongs to `FORBIDDEN`, and is 0.
        """
        tokens = np.arange(len(self.alphabet))
        nothing = np.zeros((1, len(tokens)), object)
        ends = self.asks[:, None] & (self.follow[self.rule][:, :, self.question.query] >= 0)
        ways = [np.vstack([ends.astype(int), nothing])]
        for _ in range(longest - 2):
            of_rule = ways[-1][self.follow, tokens].sum(axis=1)
            ways.append(np.vstack([of_rule[self.rule], nothing]))
        return ways

    def counts(self, longest: int) -> list[int]:
        """Return the exact number of sequences of each length up to `longest`."""
        tokens = np.arange(len(self.alphabet))
        totals = [int(ways[self.first, tokens].sum()) for ways in self.ways(longest)]
        return [0, 0, *totals]

    def drawn(
        self, length: int, size: int, rng: np.random.Generator
    ) -> Int[np.ndarray, "size pos"]:
        """Draw sequences of a length, as ids. Each sequence of the set is equally likely."""
        tokens = np.arange(len(self.alphabet))
        rows, states = np.full((size, length), self.query), np.tile(self.first, (size, 1))
        for place, left in enumerate(self.ways(length)[::-1]):
            ways = (left / left.max()).astype(float)[states, tokens]
            cumulated = ways.cumsum(axis=1)
            thresholds = rng.random((size, 1)) * cumulated[:, -1:]
            chosen = (cumulated <= thresholds).sum(axis=1)
            rows[:, place] = self.alphabet[chosen]
            states = self.follow[self.rule[states[np.arange(size), chosen], chosen]]
        return rows

    @property
    def shape(self) -> tuple[bytes, ...]:
        """What the counts depend on: equal for sets that differ only in the numbers of their
        tokens.
        """
        columns = np.vstack([self.first, self.rule, self.follow, self.alphabet == self.query]).T
        return self.asks.tobytes(), *sorted(column.tobytes() for column in columns)

    def holds(self, tokens: Any) -> bool:
        """Return whether a sequence of ids [pos] is in the set."""
        places = {int(token): place for place, token in enumerate(self.alphabet)}
        ids = [places.get(int(token), FORBIDDEN) for token in tokens]
        if FORBIDDEN in ids or len(ids) < 2 or self.alphabet[ids[-1]] != self.query:
            return False
        state, asks = int(self.first[ids[0]]), False
        for before, token in pairwise(ids):
            if state == FORBIDDEN:
                return False
            asks, state = bool(self.asks[state]), int(self.follow[self.rule[state, before], token])
        return asks and state != FORBIDDEN


def induction(
    alphabet: Iterable[int],
    query: int,
    answer: int,
    bos: int | None = None,
    sentence: str = SENTENCE,
) -> Sequences:
    """Return the sequences in which the query has occurred before, and only the answer has ever
    followed it.

    All other tokens are arbitrary. So the set has all sequences of `InductionTask` that end in this
    repeat, and more. The answer may be the query itself. `bos` is an id that begins every sequence
    and occurs nowhere else.
    """
    tokens = np.array(sorted(alphabet))
    q, y = np.searchsorted(tokens, [query, answer])
    # Rules: the query has not occurred; it has; its follower comes next.
    new, old, after_query = 0, 1, 2
    follow = np.full((3, len(tokens)), FORBIDDEN)
    follow[new], follow[old] = 0, 1
    follow[new, q], follow[after_query, y] = 1, 1
    rule = np.repeat([[new], [old]], len(tokens), axis=1)
    rule[:, q] = after_query
    first = (tokens == query).astype(int)
    if bos is not None:  # one more token, whose rule gives the states of first tokens
        follow = np.pad(follow, ((0, 1), (0, 1)), constant_values=FORBIDDEN)
        follow[-1, :-1] = first
        rule = np.pad(rule, ((0, 0), (0, 1)), constant_values=len(follow) - 1)
        first = np.append(np.full(len(tokens), FORBIDDEN), 0)
        tokens = np.append(tokens, bos)
    return Sequences(tokens, query, answer, first, rule, follow, np.array([False, True]), sentence)


def questions_of(task: Any) -> list[tuple[int, int]]:
    """Return the questions (query, answer) of a task. Raises `ConfigError` for a task whose
    sequences are no set of `induction`.
    """
    require(
        isinstance(task, InductionTask),
        f"The task is {shown(getattr(task, 'kind', type(task).__name__))}, but proofs know induction: give "
        "questions=[...] with your own automata (ihlab.certify.Sequences).",
    )
    require(
        task.period is None,
        f"InductionTask.period is {task.period}, but proofs need tokens that are drawn freely.",
    )
    pairs: Any = product(_content(task), repeat=2)
    return [pair for pair in pairs if pair[0] != pair[1] or task.score_immediate]


def automata_of(task: Any, questions: Iterable[tuple[int, int]] | None = None) -> list[Sequences]:
    """Return the automata of some questions of a task, or of all. Raises `ConfigError` for another
    question.
    """
    of_task = questions_of(task)
    wanted = {*of_task} if questions is None else {*questions}
    for question in wanted.difference(of_task):
        raise ConfigError(f"{question} is not a question (query, answer) of the task.")
    bos = task.vocab_size - 1 if task.bos else None
    sentence = SENTENCE.replace(" other", "") if task.score_immediate else SENTENCE
    automata = []
    for question in of_task:
        if question in wanted:
            automata.append(induction(_content(task), *question, bos, sentence))
    return automata


def _content(task: InductionTask) -> range:
    return range(task.min_token, task.vocab_size - task.bos)
