"""Describe in words how a model fails on a sequence: which head's attention moved, and where to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from ihlab.certify.rules import Tokens
from ihlab.interp.head_model import HeadModel
from tasks.config import ConfigError

LEAST = 0.05
"""A head that loses less attention than this is not mentioned."""

QUERY, EARLIER = "the query itself", "the token that the answer follows"
ANSWER = "the answer"

Pattern = Float[np.ndarray, "layer head query key"]
Roles = dict[str, int]
"""The position of each named token."""


def roles_in(row: Int[np.ndarray, " pos"]) -> Roles:
    """Return where the query, its earlier occurrence and the answer stand."""
    first = int((row == row[-1]).argmax())
    return {QUERY: len(row) - 1, EARLIER: first, ANSWER: first + 1}


def attention(
    model: HeadModel, tokens: Tokens
) -> Float[np.ndarray, "batch layer head query key"] | None:
    """Return the raw patterns of every head; None for a model that has none."""
    try:
        patterns = model.read(torch.from_numpy(tokens), ("raw",))["raw"]
    except ConfigError:
        return None
    return patterns.float().cpu().numpy().swapaxes(0, 1)


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
    places_of = {place: name for name, place in roles[1].items()}
    asked = {QUERY: ("at the query", [*roles[0]])}
    if len(patterns[0]) > 1:
        asked[ANSWER] = ("at the answer", [EARLIER])
    clauses = []
    for query, (where, names) in asked.items():
        attended = []  # to each named token, in the drawn sequence and in the worst one
        for pattern, places in zip(patterns, roles, strict=True):
            row = pattern[:, :, places[query]]
            attended.append(row[:, :, [places[name] for name in names]])
        lost = attended[0] - attended[1]
        layer, head, number = np.unravel_index(lost.argmax(), lost.shape)
        had, has = attended[0][layer, head, number], attended[1][layer, head, number]
        if lost.max() < LEAST:
            continue
        others = patterns[1][layer, head, roles[1][query]].copy()
        others[roles[1][names[number]]] = -1
        key = int(others.argmax())
        there = places_of.get(key, f"token {words[key]} at position {key}")
        clauses.append(
            f"{where}, head {layer}.{head} gives {has:.2f} instead of {had:.2f} of its attention to {names[number]}, "
            f"and {others[key]:.2f} to {there}"
        )
    said = "; ".join(clauses) or "no head loses much attention to what carries the question"
    return f"{said[0].upper()}{said[1:]}."
