"""Scores of a page's heads, and the tags based on them: induction, previous token, duplicate token,
idle.
"""

from collections import defaultdict
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
    scores = dict.fromkeys(TAGS, np.full(patterns[0].shape[:2], np.nan))
    of_rows = defaultdict(list)
    for pattern, ids in zip(patterns, rows, strict=True):
        for name, places in source_positions(torch.from_numpy(ids)[None]).items():
            if name in TAGS and places.any():
                score = mean_attention(torch.from_numpy(pattern)[:, None], places)
                of_rows[name].append(score.numpy())
    for name, each in of_rows.items():
        scores[name] = np.mean(each, axis=0)
    return scores


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
    heads: list[list[Any]] = number_or_none(values.round(3))
    for layer, head in np.ndindex(values.shape[:2]):
        tags = np.flatnonzero(earned[layer, head]).tolist()
        heads[layer][head] = {"scores": heads[layer][head], "tags": tags}
    return heads
