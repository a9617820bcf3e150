"""Scores of attention heads from their patterns on known tokens."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from ihlab.measure.padding import moved_patterns
from ihlab.model.lens.padding import Mask
from ihlab.model.transformer import Transformer
from tasks.config import require

FEWEST = 1 / 8
"""An offset is measured if at least this fraction of all positions distinguishes it from a prefix
match or a copy.
"""


def pattern_scores(
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    real: Mask | None = None,
) -> dict[str, Float[Tensor, "layer head"]]:
    """Return the mean attention of each head's queries to the `source_positions` of each score.

    Attention is summed over the source positions of a query, and averaged over the queries that
    have any. `real` says which positions hold tokens; padding a sequence does not change its
    scores. Raises `ConfigError` as `prefix_matches` does.
    """
    patterns, tokens, real = moved_patterns(patterns, tokens, real)
    prefix_matches(tokens, real)
    return {
        name: mean_attention(patterns, places)
        for name, places in source_positions(tokens, real).items()
    }


def source_positions(
    tokens: Int[Tensor, "batch pos"], real: Mask | None = None
) -> dict[str, Bool[Tensor, "batch query key"]]:
    """Return, for each score, the keys [batch, query, key] to which attention counts:

    - prefix_matching: the tokens right after earlier occurrences of the query's token (Olsson et
      al. 2022, arXiv 2209.11895), for the last occurrence of each repeated token in its sequence. A
      head that attends nowhere else scores 1. A query is left out if one of these keys is also the
      previous token, the query itself or a copy of it: a previous-token or duplicate-token head
      would score there too;
    - previous_token: the token before;
    - duplicate_token: earlier occurrences of the query's token;
    - first_position: the first token.

    previous_token and first_position count from the third query on: the token before the second is
    the first. `real` marks tokens; padding comes after them. On the tokens a b a c a b, with
    queries and keys counted from 0:

    - prefix_matching: query 5, key 2. Query 2 is not the last a; query 4 is, but its key 3 is also
      the previous token;
    - previous_token: queries 2 to 5, keys 1 to 4;
    - duplicate_token: query 2, key 0; query 4, keys 0 and 2; query 5, key 1;
    - first_position: queries 2 to 5, key 0.
    """
    after, copies = follows(tokens), duplicates(tokens)
    visible = torch.ones_like(after) if real is None else real[:, :, None] & real[:, None, :]
    after, copies = after & visible, copies & visible
    place = torch.arange(tokens.shape[1], device=tokens.device)
    near = (place[:, None] - 1 <= place) & (place <= place[:, None])
    confounded = (after & (near | copies)).any(dim=-1, keepdim=True)
    last = ~copies.any(dim=-2)[:, :, None]
    third = (place >= 2)[:, None]
    return {
        "prefix_matching": after & last & ~confounded,
        "previous_token": (place[:, None] - 1 == place) & third & visible,
        "duplicate_token": copies,
        "first_position": (place == 0) & third & visible,
    }


def prefix_matches(
    tokens: Int[Tensor, "batch pos"], real: Mask | None = None
) -> Bool[Tensor, "batch query key"]:
    """Return the `source_positions` of prefix_matching. Raises `ConfigError` if no query has any."""
    matches = source_positions(tokens, real)["prefix_matching"]
    require(
        bool(matches.any()),
        "No token occurs again in its sequence in a way that tells induction from attention to the previous token: use "
        "repeated sequences of at least 3 distinct tokens.",
    )
    return matches


def mean_attention(
    patterns: Float[Tensor, "*layer batch head query key"], places: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "*layer head"]:
    """Return attention summed over each query's marked keys, averaged over the queries that have
    any.

    Sums are in float32 at least (`_wide`).
    """
    patterns = _wide(patterns)
    queries = places.any(dim=-1).sum()
    return torch.einsum("...bhqk,bqk->...h", patterns, places.to(patterns.dtype)) / queries


def _wide(patterns: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return patterns in float32 or float64. In half precision, rounding errors of sums exceed the
    differences between scores.
    """
    return patterns.to(torch.promote_types(patterns.dtype, torch.float32))


def follows(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Return the keys an induction head attends to: keys up to the query whose previous token is
    the query's token.
    """
    return F.pad(
        tokens[:, :, None] == tokens[:, None, :-1], (1, 0)
    ).tril()  # the first key has no previous token


def duplicates(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Return the earlier keys that hold the query's token."""
    return (tokens[:, :, None] == tokens[:, None]).tril(-1)


def best_offset(
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    real: Mask | None = None,
) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]]:
    """Return the distance d at which each head attends most, and its mean attention there.

    The weight of d is the mean of A[q, q - d] over the queries q whose key at q - d is neither a
    prefix match nor an earlier copy of the query's token. This matters on tokens that repeat at one
    distance, where an induction head attends at one distance too. 0 is the token itself, 1 the
    token before; d goes up to half of the positions. Both results are NaN if no distance has at
    least the fraction `FEWEST` of the positions. `real` marks tokens; padding is left out.
    """
    patterns, tokens, real = moved_patterns(patterns, tokens, real)
    patterns = _wide(patterns)
    free = ~(follows(tokens) | duplicates(tokens))
    if real is not None:
        free &= real[:, :, None] & real[:, None, :]
    fewest = FEWEST * (tokens.numel() if real is None else int(real.sum()))
    weights = []
    for back in range(tokens.shape[1] // 2 + 1):
        counted = free.diagonal(-back, 1, 2)
        n = int(counted.sum())
        attention = patterns.diagonal(-back, 3, 4)
        total = torch.einsum("lbhq,bq->lh", attention, counted.to(patterns))
        weights.append(total / n if n >= fewest else torch.full_like(total, -torch.inf))
    weight, offset = torch.stack(weights).max(dim=0)
    judged = weight > -torch.inf
    return offset.to(weight).where(judged, torch.nan), weight.where(judged, torch.nan)


def scored_patterns(
    model: Transformer, tokens: Int[Tensor, "batch pos"], score: Callable[[Tensor], Tensor]
) -> Float[Tensor, " heads"]:
    """Return a score of every head, layer by layer; `score` takes a layer's pattern [batch, head,
    query, key].

    Each pattern is scored in its hook and not kept. Nothing after the last pattern is computed.
    Scores are NaN for a layer whose custom attention has no hook_pattern or does not call it.
    """
    scores: dict[int, Tensor] = {}

    def note(layer: int, pattern: Tensor, hook: HookPoint) -> None:
        scores[layer] = score(pattern)

    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    model.name_new_hook_points()
    names = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in range(n_layers)}
    hooks = [
        (name, partial(note, layer)) for layer, name in names.items() if name in model.hook_dict
    ]
    last = model.layers[-1]
    with model.hooks(fwd_hooks=hooks):
        last.attn(last.attention_input(last.entering(model.before_last_layer(tokens))))
    unknown = torch.full((n_heads,), torch.nan, device=tokens.device)
    return torch.cat([scores.get(layer, unknown) for layer in range(n_layers)])
