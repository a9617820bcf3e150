"""Sets of sequences that end in a question, as automata: a proof holds for every sequence of such a set.

An automaton reads a sequence from its first token to the token before the query. What may follow a token depends on the
state after it: each pair of a state and a token has a *rule*, and the rule gives the state after each next token.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tasks import InductionTask, MQARTask
from tasks.config import require, shown

FORBIDDEN = -1
"""The state after a token that may not come here."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """All sequences that end in `query` and have one right answer. Tokens are numbered as in `alphabet`.

    - `alphabet`: the ids of the tokens that may occur;
    - `query`, `answer`: ids;
    - `first`: the state after each token as the first of a sequence, or `FORBIDDEN`;
    - `rule`: the rule of each state and token;
    - `follow`: the state that each rule gives after each next token, or `FORBIDDEN`;
    - `asks`: whether the query may follow each state, as the last token.
    """

    alphabet: Int[np.ndarray, " token"]
    query: int
    answer: int
    first: Int[np.ndarray, " token"]
    rule: Int[np.ndarray, "state token"]
    follow: Int[np.ndarray, "rule token"]
    asks: Bool[np.ndarray, " state"]

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


def induction(alphabet: Iterable[int], query: int, answer: int, bos: int | None = None) -> Sequences:
    """Return the sequences in which the query has occurred before, and only the answer has ever followed it.

    All other tokens are arbitrary. So the set has all sequences of `InductionTask` that end in this repeat, and more.
    """
    tokens = np.array(sorted(alphabet))
    q, y = np.searchsorted(tokens, [query, answer])
    new, old, after_query = 0, 1, 2  # rules: the query has not occurred; it has; its follower comes next
    follow = np.stack([np.zeros(len(tokens), int), np.ones(len(tokens), int), np.full(len(tokens), FORBIDDEN)])
    follow[new, q], follow[after_query, y] = 1, 1
    rule = np.repeat([[new], [old]], len(tokens), axis=1)
    rule[:, q] = after_query
    first = (tokens == query).astype(int)
    return _begun(Sequences(tokens, query, answer, first, rule, follow, np.array([False, True])), bos)


def alternation(alphabet: Iterable[int], query: int, answer: int, bos: int | None = None) -> Sequences:
    """Return the sequences of period 2: the query and the answer in turn."""
    tokens = np.array(sorted(alphabet))
    q, y = np.searchsorted(tokens, [query, answer])
    follow = np.full((3, len(tokens)), FORBIDDEN)
    follow[0, y], follow[1, q] = 1, 1  # after the query, after the answer; rule 2: after any other token
    rule = np.full((2, len(tokens)), 2)
    rule[:, q], rule[:, y] = 0, 1
    first = np.where(tokens == query, 0, np.where(tokens == answer, 0, FORBIDDEN))
    return _begun(Sequences(tokens, query, answer, first, rule, follow, np.array([False, True])), bos)


def recall(task: MQARTask, query: int, answer: int) -> Sequences:
    """Return the sequences of an `MQARTask` with value_gap 1 in which this key was stored with this value.

    The pairs come first, then slots for queries at every second position. Keys may be stored twice, unlike in the task;
    only the query's key always has the same value. State 2 n + s: n + 1 tokens of the pairs are read, and s is 1 once
    the query's key is stored. In the last two states, the pairs are read, and a filler or a query slot comes next.
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
            rules[state] = np.where(is_key, 2 * (read + 1) + np.where(tokens == query, 1, stored), FORBIDDEN)
        else:
            rules[state] = np.where(is_value, 2 * (read + 1) + stored, FORBIDDEN)
    rules[slot] = np.where(filler, slot + 1, FORBIDDEN)
    rules[slot + 1] = np.where(filler | is_key, slot, FORBIDDEN)
    rule = np.repeat(np.arange(n_states)[:, None], n_tokens, axis=1)
    # The query's key is stored with the answer only: it has its own rule for each number of tokens read.
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
    return Sequences(tokens, query, answer, first, rule, np.concatenate([rules, key_rules]), asks)


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
    return Sequences(tokens, sequences.query, sequences.answer, first, rule, follow, sequences.asks)


def sequences_of(task: Any) -> tuple[list[tuple[int, int]], Callable[[int, int], Sequences]]:
    """Return the questions (query, answer) of a task, and the function from a question to its sequences.

    Raises `ConfigError` for a task without such an automaton.
    """
    if isinstance(task, MQARTask):
        require(
            task.value_gap == 1 and not task.bos,
            f"MQARTask has value_gap={task.value_gap} and bos={task.bos}, but proofs need value_gap=1 and bos=False.",
        )
        half = task.vocab_size // 2
        questions = [(key, value) for key in range(1, half) for value in range(half, task.vocab_size)]
        return questions, lambda query, answer: recall(task, query, answer)
    require(
        isinstance(task, InductionTask),
        f"The task is {shown(getattr(task, 'kind', type(task).__name__))}, but proofs know induction and mqar: give "
        "questions=[...] with your own automata (ihlab.certify.Sequences).",
    )
    require(task.period in (None, 2), f"InductionTask.period is {task.period}, but proofs know period 2 or none.")
    bos = task.vocab_size - 1 if task.bos else None
    alphabet = range(task.min_token, task.vocab_size - task.bos)
    kind = induction if task.period is None else alternation
    questions = [(query, answer) for query in alphabet for answer in alphabet if query != answer]
    return questions, lambda query, answer: kind(alphabet, query, answer, bos)
