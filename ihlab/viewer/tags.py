"""Scores of a page's heads, and the tags that they earn: induction, previous token, duplicate token, idle."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ihlab.interp.locate import PREFIX_LEAST
from ihlab.interp.patterns import effective_patterns, raw_patterns
from ihlab.interp.sources import attention_patterns
from ihlab.measure.heads import at_positions, duplicates, mean_attention, prefix_matches
from ihlab.measure.probe import PREFIX_REPEATS, probe_rows, repeated_rows, rolled
from ihlab.model.modes import evaluated
from ihlab.model.transformer import Transformer
from tasks.config import ConfigError

LONGEST = 128
"""Positions of a probe. Up to this n_ctx, scores are those of `head_scores`."""

NAMES = {
    "prefix_matching": "induction",
    "previous_token": "previous token",
    "duplicate_token": "duplicate token",
    "first_position": "idle",
}
"""What a head is called that spends more than `PREFIX_LEAST` of its attention so."""

Scores = dict[str, Float[np.ndarray, "layer head"]]


class Probe:
    """Random repeated tokens for a model, as `head_scores` draws them, and the scores of its heads on them."""

    def __init__(self, model: Transformer, ids: Sequence[int] | None) -> None:
        """Raise `ConfigError` if the model's rows are too short to repeat anything."""
        self.tokens = probe_rows(model, PREFIX_REPEATS, 16, min(model.cfg.n_ctx, LONGEST), ids, 0)
        self.rolled = rolled(self.tokens, self.tokens.shape[1] // PREFIX_REPEATS, 0)

    def scores(self, model: Transformer) -> Scores:
        """Score the effective patterns, or the raw ones where none is exact; `fixed_distance` as a control."""
        return _with_control(lambda tokens: _patterns(model, tokens), self.tokens, self.rolled)


def scores_of_model(model: Any, vocabulary: int, n_ctx: int) -> Scores:
    """Score a model of another library on random repeated tokens. Raises `ConfigError` as `repeated_rows` does."""
    tokens = repeated_rows(range(vocabulary), 4, min(n_ctx, LONGEST) // PREFIX_REPEATS, PREFIX_REPEATS)
    again = rolled(tokens, tokens.shape[1] // PREFIX_REPEATS)
    return _with_control(lambda rows: attention_patterns(model, rows), tokens, again)


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


@evaluated
@torch.no_grad()
def _patterns(model: Transformer, tokens: Int[Tensor, "rows pos"]) -> Float[Tensor, "layer rows head query key"]:
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith(("hook_pattern", "hook_beta")))
    exact = model.cfg.values_mixed_elsewhere is None
    return effective_patterns(cache, fix_gauge=True) if exact else raw_patterns(cache)


def _with_control(
    patterns: Callable[[Tensor], Tensor], tokens: Int[Tensor, "rows pos"], again: Int[Tensor, "rows pos"]
) -> Scores:
    read, places = patterns(tokens), _places(tokens)
    scores = {name: mean_attention(read, places[name].to(read.device)) for name in NAMES}
    control = mean_attention(patterns(again), places["prefix_matching"].to(read.device))
    return {name: score.float().cpu().numpy() for name, score in {**scores, "fixed_distance": control}.items()}


def _places(tokens: Int[Tensor, "batch pos"]) -> dict[str, Bool[Tensor, "batch query key"]]:
    """Return the source positions of every score; none for prefix matching where no token repeats well enough."""
    copies = duplicates(tokens)
    try:
        matches = prefix_matches(tokens)
    except ConfigError:
        matches = torch.zeros_like(copies)
    return {"prefix_matching": matches, "duplicate_token": copies, **at_positions(tokens)}
