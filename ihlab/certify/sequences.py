"""Sets of sequences that end in a question, as automata: a proof holds for every sequence of such a
set.

An automaton reads a sequence from its first token to the token before the query. What may follow a
token depends on the state after it: each pair of a state and a token has a *rule*, and the rule
gives the state after each next token.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tasks import InductionTask, MQARTask
from tasks.config import require, require_integer, shown

FORBIDDEN = -1
"""The state after a token that may not come here."""
_KINDS = {"b": "bools", "iu": "whole numbers"}
REPEAT = "whose last token has come before, always followed by one and the same"


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
      16 ids".

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
            given = np.asarray(getattr(self, name))
            kind = "b" if name == "asks" else "iu"
            require(
                given.dtype.kind in kind,
                f"Sequences.{name} is {shown(given)}, but must be an array of {_KINDS[kind]}.",
            )
            own = given.astype(bool if name == "asks" else np.int64)
            own.flags.writeable = False  # compiled code reads it without looking at its bounds
            object.__setattr__(self, name, own)
        dimensions = (self.alphabet.ndim, self.rule.ndim, self.follow.ndim)
        require(
            dimensions == (1, 2, 2), "Sequences.alphabet must have one axis, rule and follow two."
        )
        ids, states, rules = self.alphabet, len(self.rule), len(self.follow)
        require(
            len(ids) > 0 and bool((np.diff(ids) > 0).all()) and int(ids[0]) >= 0,
            f"Sequences.alphabet is {shown(ids.tolist())}, but must be different ids in ascending order.",
        )
        for name in ("query", "answer"):
            token = getattr(self, name)
            require_integer(f"Sequences.{name}", token, 0)
            require(
                token in ids,
                f"Sequences.{name} is {token}, which is not in the alphabet {shown(ids.tolist())}.",
            )
        shapes = {
            "first": (len(ids),),
            "rule": (states, len(ids)),
            "follow": (rules, len(ids)),
            "asks": (states,),
        }
        limits = {
            "first": (FORBIDDEN, states),
            "rule": (0, rules),
            "follow": (FORBIDDEN, states),
            "asks": (0, 2),
        }
        for name, shape in shapes.items():
            array, (low, stop) = getattr(self, name), limits[name]
            require(
                array.shape == shape,
                f"Sequences.{name} has the shape {array.shape}, but must have {shape}.",
            )
            inside = bool(((array >= low) & (array < stop)).all())
            require(inside, f"Sequences.{name} has numbers that are not from {low} to {stop - 1}.")

    def ways(self, longest: int) -> list[np.ndarray]:
        """Return the exact number of ways to end 1, 2, .., longest - 1 tokens after a token, each
        [state, token].

        The last row belongs to `FORBIDDEN`, and is 0.
        """
        query, tokens = (
            int(np.searchsorted(self.alphabet, self.query)),
            np.arange(len(self.alphabet)),
        )
        nothing = np.zeros((1, len(tokens)), object)
        ends = self.asks[:, None] & (self.follow[self.rule][:, :, query] >= 0)
        ways = [np.vstack([ends.astype(int), nothing])]
        for _ in range(longest - 2):
            of_rule = ways[-1][self.follow, tokens].sum(axis=1)
            ways.append(np.vstack([of_rule[self.rule], nothing]))
        return ways

    def counts(self, longest: int) -> list[int]:
        """Return the exact number of sequences of each length up to `longest`."""
        tokens = np.arange(len(self.alphabet))
        return [0, 0, *(int(ways[self.first, tokens].sum()) for ways in self.ways(longest))]

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
        return (
            self.asks.tobytes(),
            *sorted(np.ascontiguousarray(column).tobytes() for column in columns),
        )

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
    alphabet: Iterable[int], query: int, answer: int, bos: int | None = None
) -> Sequences:
    """Return the sequences in which the query has occurred before, and only the answer has ever
    followed it.

    All other tokens are arbitrary. So the set has all sequences of `InductionTask` that end in this
    repeat, and more. The answer may be the query itself.
    """
    tokens = np.array(sorted(alphabet))
    q, y = np.searchsorted(tokens, [query, answer])
    new, old, after_query = (
        0,
        1,
        2,
    )  # rules: the query has not occurred; it has; its follower comes next
    follow = np.stack(
        [np.zeros(len(tokens), int), np.ones(len(tokens), int), np.full(len(tokens), FORBIDDEN)]
    )
    follow[new, q], follow[after_query, y] = 1, 1
    rule = np.repeat([[new], [old]], len(tokens), axis=1)
    rule[:, q] = after_query
    first = (tokens == query).astype(int)
    asks, sentence = (
        np.array([False, True]),
        f"{REPEAT} other token" if query != answer else f"{REPEAT} token",
    )
    return _begun(Sequences(tokens, query, answer, first, rule, follow, asks, sentence), bos)


def alternation(
    alphabet: Iterable[int], query: int, answer: int, bos: int | None = None
) -> Sequences:
    """Return the sequences of period 2: the query and the answer in turn."""
    tokens = np.array(sorted(alphabet))
    q, y = np.searchsorted(tokens, [query, answer])
    follow = np.full((3, len(tokens)), FORBIDDEN)
    follow[0, y], follow[1, q] = (
        1,
        1,
    )  # after the query, after the answer; rule 2: after any other token
    rule = np.full((2, len(tokens)), 2)
    rule[:, q], rule[:, y] = 0, 1
    first = np.where(tokens == query, 0, np.where(tokens == answer, 0, FORBIDDEN))
    asks, sentence = np.array([False, True]), "in which two tokens take turns"
    return _begun(Sequences(tokens, query, answer, first, rule, follow, asks, sentence), bos)


def recall(task: MQARTask, query: int, answer: int) -> Sequences:
    """Return the sequences of an `MQARTask` with value_gap 1 in which this key was stored with this
    value.

    The pairs come first, then slots for queries at every second position. Keys may be stored twice,
    unlike in the task; only the query's key always has the same value. State 2 n + s: n + 1 tokens
    of the pairs are read, and s is 1 once the query's key is stored. In the last two states, the
    pairs are read, and a filler or a query slot comes next.
    """
    n_tokens, n_front = task.vocab_size, 2 * task.pairs
    tokens = np.arange(n_tokens)
    is_key, is_value = (tokens >= 1) & (tokens < n_tokens // 2), tokens >= n_tokens // 2
    filler = tokens == 0 if task.fill == "blank" else np.ones(n_tokens, bool)
    slot = 2 * n_front
    gives_up = slot + 2  # the rule without a next token
    n_states, rules = slot + 2, np.full((slot + 3, n_tokens), FORBIDDEN)
    for state in range(slot):
        read, stored = divmod(state, 2)
        if read == n_front - 1:  # the last value is read: slots begin, if the key is stored
            rules[state] = np.where(filler | is_key, slot, FORBIDDEN) if stored else FORBIDDEN
        elif read % 2:
            rules[state] = np.where(
                is_key, 2 * (read + 1) + np.where(tokens == query, 1, stored), FORBIDDEN
            )
        else:
            rules[state] = np.where(is_value, 2 * (read + 1) + stored, FORBIDDEN)
    rules[slot] = np.where(filler, slot + 1, FORBIDDEN)
    rules[slot + 1] = np.where(filler | is_key, slot, FORBIDDEN)
    rule = np.repeat(np.arange(n_states)[:, None], n_tokens, axis=1)
    # The query's key is stored with the answer only: it has its own rule for each number of tokens
    # read.
    key_rules = np.full((n_front, n_tokens), FORBIDDEN)
    for read in range(0, n_front, 2):
        key_rules[read, answer] = 2 * (read + 1) + 1
        rule[2 * read + 1, query] = len(rules) + read
        rule[2 * read, query] = gives_up
    if task.fill == "blank":
        rule[slot, query] = gives_up  # a key is asked for once
    first = np.where(is_key, np.where(tokens == query, 1, 0), FORBIDDEN)
    asks = np.zeros(n_states, bool)
    asks[slot + 1] = True
    asks[2 * (n_front - 1) + 1] = True
    filled = "blanks between queries" if task.fill == "blank" else "random tokens between queries"
    sentence = (
        f"that begin with {task.pairs} pairs of a key and a value, go on with {filled}, and end in a key that was "
        "paired with one value only"
    )
    return Sequences(
        tokens, query, answer, first, rule, np.concatenate([rules, key_rules]), asks, sentence
    )


def _begun(sequences: Sequences, bos: int | None) -> Sequences:
    """Return the same sequences after a BOS token that occurs nowhere else."""
    if bos is None:
        return sequences
    tokens = np.append(sequences.alphabet, bos)
    start = len(sequences.follow)
    follow = np.pad(sequences.follow, ((0, 1), (0, 1)), constant_values=FORBIDDEN)
    follow[start, :-1] = sequences.first
    rule = np.pad(sequences.rule, ((0, 0), (0, 1)), constant_values=start)
    first = np.append(np.full(len(tokens) - 1, FORBIDDEN), 0)
    return replace(sequences, alphabet=tokens, first=first, rule=rule, follow=follow)


def sequences_of(task: Any) -> tuple[list[tuple[int, int]], Callable[[int, int], Sequences]]:
    """Return the questions (query, answer) of a task, and the function from a question to its
    sequences.

    Raises `ConfigError` for a task without such an automaton.
    """
    if isinstance(task, MQARTask):
        require(
            task.value_gap == 1 and not task.bos,
            f"MQARTask has value_gap={task.value_gap} and bos={task.bos}, but proofs need value_gap=1 and bos=False.",
        )
        half = task.vocab_size // 2
        questions = [
            (key, value) for key in range(1, half) for value in range(half, task.vocab_size)
        ]
        return questions, lambda query, answer: recall(task, query, answer)
    require(
        isinstance(task, InductionTask),
        f"The task is {shown(getattr(task, 'kind', type(task).__name__))}, but proofs know induction and mqar: give "
        "questions=[...] with your own automata (ihlab.certify.Sequences).",
    )
    require(
        task.period in (None, 2),
        f"InductionTask.period is {task.period}, but proofs know period 2 or none.",
    )
    bos = task.vocab_size - 1 if task.bos else None
    alphabet = range(task.min_token, task.vocab_size - task.bos)
    kind = induction if task.period is None else alternation
    immediate = task.score_immediate and task.period is None
    questions = [
        (query, answer) for query in alphabet for answer in alphabet if query != answer or immediate
    ]
    if not immediate:
        return questions, lambda query, answer: kind(alphabet, query, answer, bos)
    sentence = f"{REPEAT} token"
    return questions, lambda query, answer: replace(
        kind(alphabet, query, answer, bos), sentence=sentence
    )
