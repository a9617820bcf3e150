"""Scores of a page's heads, and the tags that they earn: induction, previous token, duplicate token, idle."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ihlab.interp.foreign import LONGEST_PROBE
from ihlab.interp.locate import PREFIX_LEAST
from ihlab.interp.patterns import effective_known
from ihlab.interp.sources import HeadModel, OwnModel
from ihlab.measure.heads import at_positions, duplicates, mean_attention, prefix_matches
from ihlab.measure.probe import PREFIX_REPEATS, rolled
from tasks.config import ConfigError

NAMES = {
    "prefix_matching": "induction",
    "previous_token": "previous token",
    "duplicate_token": "duplicate token",
    "first_position": "idle",
}
"""What a head is called that spends more than `PREFIX_LEAST` of its attention so."""

Scores = dict[str, Float[np.ndarray, "layer head"]]


class Probe:
    """Random repeated tokens for a model, and the scores of its heads on them.

    Both are those of `head_scores`, on rows of at most `LONGEST_PROBE` tokens, whoever's the model is.
    """

    def __init__(self, model: HeadModel) -> None:
        """Raise `ConfigError` if the model's rows are too short to repeat anything."""
        length = min(model.n_ctx, LONGEST_PROBE) if isinstance(model, OwnModel) else None
        self.tokens = model.probe_rows(PREFIX_REPEATS, 16, length, None, 0)
        self.rolled = rolled(self.tokens, self.tokens.shape[1] // PREFIX_REPEATS, 0)

    def scores(self, model: HeadModel) -> Scores:
        """Score the effective patterns, or the raw ones where none is exact; `fixed_distance` as a control."""
        exact = not isinstance(model, OwnModel) or effective_known(model.model.cfg)
        kind = "effective" if exact else "raw"
        read, again = (model.read(tokens, kinds=(kind,)).patterns[kind] for tokens in (self.tokens, self.rolled))
        places = {name: at.to(read.device) for name, at in _places(self.tokens).items()}
        scores = {name: mean_attention(read, places[name]) for name in NAMES}
        scores["fixed_distance"] = mean_attention(again, places["prefix_matching"])
        return {name: score.float().cpu().numpy() for name, score in scores.items()}


def scores_of_rows(
    patterns: Sequence[Float[np.ndarray, "layer head query key"]], rows: Sequence[Int[np.ndarray, " pos"]]
) -> Scores:
    """Score patterns on their own tokens, a mean over the rows that have what a score needs; NaN if none has."""
    scores: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for pattern, ids in zip(patterns, rows, strict=True):
        tokens = torch.from_numpy(ids)[None]
        for name, places in _places(tokens).items():
            if places.any():
                scores[name].append(mean_attention(torch.from_numpy(pattern)[:, None], places).numpy())
    nothing = np.full(patterns[0].shape[:2], np.nan)
    return {name: np.mean(found, axis=0) if found else nothing for name, found in scores.items()}


def tagged(scores: Scores) -> list[list[dict[str, Any]]]:
    """Return for every head [layer][head] its scores, in the order of `NAMES`, and which of them are its tags.

    An induction head's attention must not go to the same distance when the tokens there are no matches.
    """
    n_layers, n_heads = scores["prefix_matching"].shape
    control = scores.get("fixed_distance", np.zeros((n_layers, n_heads)))
    return [
        [
            {
                "scores": [None if np.isnan(s) else round(float(s), 3) for s in (scores[name][at] for name in NAMES)],
                "tags": [
                    i
                    for i, name in enumerate(NAMES)
                    if scores[name][at] >= PREFIX_LEAST and (i > 0 or control[at] < PREFIX_LEAST)
                ],
            }
            for at in ((layer, head) for head in range(n_heads))
        ]
        for layer in range(n_layers)
    ]


def _places(tokens: Int[Tensor, "batch pos"]) -> dict[str, Bool[Tensor, "batch query key"]]:
    """Return the source positions of every score; none for prefix matching where no token repeats well enough."""
    copies = duplicates(tokens)
    try:
        matches = prefix_matches(tokens)
    except ConfigError:
        matches = torch.zeros_like(copies)
    return {"prefix_matching": matches, "duplicate_token": copies, **at_positions(tokens)}
