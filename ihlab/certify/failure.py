"""Describe in words how a model fails on a sequence: which head's attention moved, and where to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from ihlab.certify.rules import Rule, Tokens
from ihlab.interp.head_model import HeadModel
from tasks.config import ConfigError

LEAST = 0.05
"""A head that loses less attention than this is not mentioned."""

QUERY, BEFORE = "the query itself", "the token before the query"
EARLIER, ANSWER = "the token that the answer follows", "the answer"

Pattern = Float[np.ndarray, "layer head query key"]
Roles = dict[str, int]
"""The position of each named token."""


def roles_in(rule: Rule, row: Int[np.ndarray, " pos"]) -> Roles:
    """Return where the query, its earlier occurrence and the answer stand, or the last two tokens
    of an n-gram.
    """
    carry = [rule.begin + place for place in rule.located(row[rule.begin :]) or ()]
    if not rule.copies:
        return {BEFORE: carry[-2], QUERY: carry[-1]} if len(carry) > 1 else {QUERY: carry[-1]}
    return {QUERY: len(row) - 1, EARLIER: carry[-2], ANSWER: carry[-1]}


def attention(
    model: HeadModel, tokens: Tokens
) -> Float[np.ndarray, "batch layer head query key"] | None:
    """Return the raw patterns of every head; None for a model that has none."""
    try:
        return (
            model.read(torch.from_numpy(tokens), ("raw",))["raw"]
            .float()
            .cpu()
            .numpy()
            .swapaxes(0, 1)
        )
    except ConfigError:
        return None


def explained(
    patterns: Sequence[Pattern], roles: Sequence[Roles], worst: Int[np.ndarray, " pos"], task: Any
) -> str:
    """Say which head lost the most attention to the tokens that carry the question, and what it
    attends to instead.

    `patterns` and `roles` are those of the drawn sequence and of `worst`. Attention is compared at
    the last token and, from two layers on, at the answer's position, where an earlier layer must
    attend to the previous token.
    """
    words = getattr(task, "words", lambda ids: [str(i) for i in ids])(worst)
    clauses = []
    for where, query, names in (
        ("at the query", QUERY, [*roles[0]]),
        ("at the answer", ANSWER, [EARLIER]),
    ):
        if query not in roles[0] or (query == ANSWER and len(patterns[0]) == 1):
            continue
        rows = [
            pattern[:, :, places[query]] for pattern, places in zip(patterns, roles, strict=True)
        ]
        before, after = (
            row[:, :, [of[name] for name in names]] for row, of in zip(rows, roles, strict=True)
        )
        layer, head, role = np.unravel_index((before - after).argmax(), before.shape)
        had, has = before[layer, head, role], after[layer, head, role]
        others = rows[1][layer, head].copy()
        others[roles[1][names[role]]] = -1
        key = int(others.argmax())
        there = {place: name for name, place in roles[1].items()}.get(
            key, f"token {words[key]} at position {key}"
        )
        if had - has >= LEAST:
            clauses.append(
                f"{where}, head {layer}.{head} gives {has:.2f} instead of {had:.2f} of its attention to {names[role]}, "
                f"and {others[key]:.2f} to {there}"
            )
    said = "; ".join(clauses) or "no head loses much attention to what carries the question"
    return f"{said[0].upper()}{said[1:]}."
