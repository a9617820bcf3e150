"""Scores of a page's heads, and the tags based on them: induction, previous token, duplicate token,
idle.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.head_model import HeadModel
from ihlab.interp.heads import PREFIX_LEAST, probe_scores
from ihlab.measure.columns import COLUMNS
from ihlab.measure.heads import mean_attention, source_positions
from ihlab.viewer.packing import number_or_none

TAGS = {column.name: column.tag for column in COLUMNS if column.tag}
"""Maps a score's name to the tag of heads whose score is at least `PREFIX_LEAST`."""

Scores = dict[str, Float[np.ndarray, "layer head"]]


def scores_of_probe(model: HeadModel, tokens: Int[Tensor, "rows pos"]) -> Scores:
    """Score the effective patterns as `head_scores` does, or the raw ones if effective ones are not
    exact.
    """
    scores = probe_scores(model, tokens, kinds=(model.exact_kind,))[model.exact_kind]
    return {name: score.double().cpu().numpy() for name, score in scores.items()}


def scores_of_rows(
    patterns: Sequence[Float[np.ndarray, "layer head query key"]],
    rows: Sequence[Int[np.ndarray, " pos"]],
) -> Scores:
    """Score patterns on their own tokens, averaged over sequences where a score is defined; NaN if
    there are none.
    """
    shape = patterns[0].shape[:2]
    total = {name: np.zeros(shape) for name in TAGS}
    n_rows = dict.fromkeys(TAGS, 0)
    for pattern, ids in zip(patterns, rows, strict=True):
        for name, places in source_positions(torch.from_numpy(ids)[None]).items():
            if name in TAGS and places.any():
                total[name] += mean_attention(torch.from_numpy(pattern)[:, None], places).numpy()
                n_rows[name] += 1
    for name, n in n_rows.items():
        total[name] = total[name] / n if n else np.full(shape, np.nan)
    return total


def tagged(scores: Scores) -> list[list[dict[str, Any]]]:
    """Return every head's [layer][head] scores, in the order of `TAGS`, and the indices of the
    scores that are tags.

    A head gets no induction tag if it attends at the same distance to tokens that are not matches.
    """
    values = np.stack([scores[name] for name in TAGS], axis=-1)
    earned = values >= PREFIX_LEAST
    if "same_distance_control" in scores:
        earned[..., list(TAGS).index("prefix_matching")] &= (
            scores["same_distance_control"] < PREFIX_LEAST
        )
    n_layers, n_heads, _ = values.shape
    heads: list[list[dict[str, Any]]] = [[] for _ in range(n_layers)]
    for layer, head in np.ndindex(n_layers, n_heads):
        rounded = number_or_none(values[layer, head].round(3))
        heads[layer].append(
            {"scores": rounded, "tags": np.flatnonzero(earned[layer, head]).tolist()}
        )
    return heads
