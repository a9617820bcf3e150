"""Attention at a fixed distance: how far back a head looks, regardless of the tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.measure.heads import duplicates, follows
from ihlab.measure.padding import moved_patterns
from ihlab.model.padding import Mask

FEWEST = 1 / 8
"""An offset is measured if at least this fraction of all positions distinguishes it from a prefix match or a copy."""


def best_offset(
    patterns: Float[Tensor, "layer batch head query key"], tokens: Int[Tensor, "batch pos"], real: Mask | None = None
) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]]:
    """Return the distance d at which each head attends most, and its mean attention there.

    The weight of d is the mean of A[q, q - d] over the queries q whose key at q - d is neither a prefix match nor an
    earlier copy of the query's token. This matters on tokens that repeat at one distance, where an induction head
    attends at one distance too. 0 is the token itself, 1 the token before; d goes up to half of the positions. Both
    results are NaN if no distance has at least the fraction `FEWEST` of the positions. `real` marks tokens; padding is
    left out.
    """
    patterns, tokens, real = moved_patterns(patterns, tokens, real)
    free = ~(follows(tokens) | duplicates(tokens))
    if real is not None:
        free &= real[:, :, None] & real[:, None, :]
    fewest = FEWEST * (tokens.numel() if real is None else int(real.sum()))
    weights = []
    for back in range(tokens.shape[1] // 2 + 1):
        counted = free.diagonal(-back, 1, 2)
        at = patterns.diagonal(-back, 3, 4).to(torch.promote_types(patterns.dtype, torch.float32))
        n = int(counted.sum())
        total = torch.einsum("lbhq,bq->lh", at, counted.to(at))
        weights.append(total / n if n >= fewest else torch.full_like(total, -torch.inf))
    weight, offset = torch.stack(weights).max(dim=0)
    judged = weight > -torch.inf
    return offset.to(weight).where(judged, torch.nan), weight.where(judged, torch.nan)
