"""Scores of a page's heads, and the tags based on them: induction, previous token, duplicate token, idle."""

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

TAGS = {column.name: column.tag for column in COLUMNS if column.tag}
"""Maps a score's name to the tag of heads whose score is at least `PREFIX_LEAST`."""

Scores = dict[str, Float[np.ndarray, "layer head"]]


def scores_of_probe(model: HeadModel, tokens: Int[Tensor, "rows pos"]) -> Scores:
    """Score the effective patterns as `head_scores` does, or the raw ones if effective ones are not exact."""
    scores = probe_scores(model, tokens, kinds=(model.exact_kind,))
    return {name: score.float().cpu().numpy() for name, score in scores[model.exact_kind].items()}


def scores_of_rows(
    patterns: Sequence[Float[np.ndarray, "layer head query key"]], rows: Sequence[Int[np.ndarray, " pos"]]
) -> Scores:
    """Score patterns on their own tokens, averaged over sequences where a score is defined; NaN if there are none."""
    scores: dict[str, list[np.ndarray]] = {name: [] for name in TAGS}
    for pattern, ids in zip(patterns, rows, strict=True):
        for name, places in source_positions(torch.from_numpy(ids)[None]).items():
            if name in TAGS and places.any():
                scores[name].append(mean_attention(torch.from_numpy(pattern)[:, None], places).numpy())
    nothing = np.full(patterns[0].shape[:2], np.nan)
    return {name: np.mean(of_rows, axis=0) if of_rows else nothing for name, of_rows in scores.items()}


def tagged(scores: Scores) -> list[list[dict[str, Any]]]:
    """Return every head's [layer][head] scores, in the order of `TAGS`, and the indices of the scores that are tags.

    A head gets no induction tag if it attends at the same distance to tokens that are not matches.
    """
    values = np.stack([scores[name] for name in TAGS], axis=-1)
    earned = values >= PREFIX_LEAST
    if "same_distance_control" in scores:
        earned[..., list(TAGS).index("prefix_matching")] &= scores["same_distance_control"] < PREFIX_LEAST
    heads = []
    for layer, earned_by in zip(values, earned, strict=True):
        heads.append([_head(*head) for head in zip(layer, earned_by, strict=True)])
    return heads


def _head(values: Float[np.ndarray, " tag"], earned: np.ndarray) -> dict[str, Any]:
    scores = [None if np.isnan(value) else round(float(value), 3) for value in values]
    return {"scores": scores, "tags": np.flatnonzero(earned).tolist()}
