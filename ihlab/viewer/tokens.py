"""Sequences of a page: user-given ids or words, and the text of each token."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import index
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.viewer.token_text import Distinct, tokenizer_text
from tasks import IGNORE, Task
from tasks.config import ConfigError, require, shown

MOST_ID = 2**62
MOST_WORDS = 100_000
"""Given words are looked up in vocabularies up to this size."""


@dataclass(frozen=True)
class TokenRow:
    """One sequence of a page.

    - `ids`: token ids; for patterns without a model, any numbers that are equal for equal tokens;
    - `names`: the text at each position;
    - `targets`: the task's targets, `IGNORE` where nothing is scored; None: the target is the next
      token.
    """

    ids: Int[np.ndarray, " pos"]
    names: list[str]
    targets: Int[np.ndarray, " pos"] | None = None


def text_by(words: Any, task: Task | None) -> Distinct | None:
    """Return a function from an id to its text, using `words` or the task; None if both are
    missing.

    `words`: anything with `words(ids)` (a task) or `decode(ids)` (a tokenizer), a mapping, or a
    function.
    """
    if words is None:
        words = task
    if (
        getattr(words, "words", None) is not None
    ):  # before `decode`, which returns bytes for a text task
        size = words.vocab_size
        return Distinct(lambda i: words.words(np.array([i]))[0] if 0 <= i < size else str(i))
    if hasattr(words, "decode"):
        return Distinct(tokenizer_text(words))
    if isinstance(words, Mapping):
        return Distinct(lambda i: str(words.get(i, i)))
    require(
        words is None or words is task or callable(words),
        f"words is {shown(words)}, but must be a tokenizer with `decode`, a mapping or a function from ids to text.",
    )
    return Distinct(words) if callable(words) else None


def held_out_rows(task: Task, rows: int, text: Distinct | None) -> list[TokenRow]:
    """Return held-out sequences of a task with their targets, without padding after the last
    target.
    """
    text_of = text or str
    token_rows = []
    for number in range(rows):
        batch = draw(task, EVAL_SEED, "eval", number, 1)
        ids, targets = batch.inputs[0], batch.targets[0]
        scored = np.flatnonzero(targets != IGNORE)
        differing = np.flatnonzero(ids != ids[-1])  # padding repeats one id
        size = max([0, *scored[-1:], *differing[-1:]]) + 1
        if not len(differing) or len(ids) - size < 2:
            size = len(ids)
        names = list(map(text_of, ids[:size].tolist()))
        token_rows.append(TokenRow(ids[:size], names, targets[:size]))
    return token_rows


def given_rows(tokens: Any, text: Distinct | None, vocabulary: int | None) -> list[TokenRow]:
    """Return the sequences in `tokens`; see `ihlab.viewer.view`. `vocabulary`: the model's
    vocabulary size, or None.
    """
    rows = _nested(tokens)
    of_words = any(isinstance(token, str) for token in chain(*rows))
    if vocabulary is None:  # patterns alone: equal texts are equal tokens
        least, last = -MOST_ID, MOST_ID
        texts = dict.fromkeys(map(str, chain(*rows)))
        known = {name: i for i, name in enumerate(texts)}
    else:
        least, last = 0, vocabulary - 1
        known = _inverse(text, vocabulary, of_words)
    token_rows = []
    for row in rows:
        require(len(row) > 0, "The sequence has 0 positions, but must have at least 1.")
        ids = [_id(token, known, last) for token in row]
        for i in ids:
            if not least <= i <= last:
                raise ConfigError(
                    f"tokens holds {shown(i)}, which is outside the vocabulary: ids are {least} to {last}."
                )
        names = list(map(text or str, ids))
        if of_words and vocabulary is None:
            names = list(map(str, row))
        token_rows.append(TokenRow(np.array(ids, dtype=np.int64), names))
    return token_rows


def _nested(tokens: Any) -> list[list[Any]]:
    if isinstance(tokens, Tensor | np.ndarray):
        shape = list(tokens.shape)
        require(
            len(shape) in (1, 2),
            f"tokens has the shape {shape}, but must be [pos] or [batch, pos].",
        )
        tokens = tokens.tolist()
    if isinstance(tokens, str):
        if re.fullmatch(r"[-\d\s,]+", tokens):  # ids may have commas between them
            tokens = tokens.replace(",", " ")
        return [tokens.split()]
    require(
        isinstance(tokens, Sequence | range),
        f"tokens is {shown(tokens)}, but must be ids or words: a list, a list of sequences, a tensor, or a text.",
    )
    rows = list(tokens)
    if rows and all(
        isinstance(row, list | tuple | range | Tensor | np.ndarray) and np.ndim(row) == 1
        for row in rows
    ):
        return [row.tolist() if hasattr(row, "tolist") else list(row) for row in rows]
    return [rows]


def _inverse(text: Distinct | None, vocabulary: int, of_words: bool) -> dict[str, int]:
    """Return the id of each word; empty if none is looked up."""
    if text is None or vocabulary > MOST_WORDS or not of_words:
        return {}
    return {text.plain(i): i for i in reversed(range(vocabulary))}


def _id(token: Any, known: dict[str, int], last: int) -> int:
    """Return the id of a word. A number that is not a word is an id."""
    if isinstance(token, str) and token in known:
        return known[token]
    try:
        return int(token) if isinstance(token, str) else index(token)
    except (TypeError, ValueError):
        raise ConfigError(
            f"tokens holds {shown(token)}, but must hold words of the vocabulary, ids up to {last}, or "
            "sequences of them."
        ) from None
