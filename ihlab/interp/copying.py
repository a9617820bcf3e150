"""Copying scores: whether a head raises the logit of the token it attends to."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.head_model import HeadModel

MOST_LOGITS = 2**25
"""Maximum number of logits in memory at once: 128 MB in float32."""


@torch.no_grad()
def copying(
    model: HeadModel,
    z: Sequence[Float[Tensor, "batch pos head d_head"]],
    patterns: Mapping[str, Float[Tensor, "layer batch head query key"]],
    tokens: Int[Tensor, "batch pos"],
    last: int,
) -> dict[str, Float[Tensor, "layer head"]]:
    """Return, for each kind of pattern, the fraction of a head's direct logit attribution on the token it attends to.

    For each of the `last` queries of a sequence, the head's own output z W_O is unembedded directly (through the final
    norm's weight; its scale does not change fractions) and the logits are centred over the vocabulary. The score is the
    attended token's fraction of the positive logits. The attended token is the one whose positions together get the
    most attention. A perfect copier scores 1; a head that writes at random scores 1 / d_vocab on average (Olsson
    et al. 2022, arXiv 2209.11895, "copying", with fractions in place of their ratio). `z` holds every layer's z.
    """
    at_once = max(1, MOST_LOGITS // (last * model.d_vocab))
    scores: dict[str, list[Tensor]] = {kind: [] for kind in patterns}
    for layer, head in np.ndindex(model.n_layers, model.n_heads):
        unembedding = model.head_unembedding(layer, head)
        of_head: dict[str, list[Tensor]] = {kind: [] for kind in patterns}
        for start in range(0, len(tokens), at_once):
            rows = slice(start, start + at_once)
            raised = z[layer][rows, -last:, head].to(unembedding) @ unembedding
            raised = (raised - raised.mean(dim=-1, keepdim=True)).relu()
            total = raised.sum(dim=-1).clamp_min(torch.finfo(raised.dtype).tiny)
            for kind, of_kind in patterns.items():
                attended = _attended(of_kind[layer, rows, head, -last:].to(raised), tokens[rows].to(raised.device))
                of_head[kind].append(raised.gather(2, attended[..., None])[..., 0] / total)
        for kind, fractions in of_head.items():
            scores[kind].append(torch.cat(fractions).mean())
    return {kind: torch.stack(fractions).unflatten(0, (model.n_layers, -1)) for kind, fractions in scores.items()}


def _attended(
    pattern: Float[Tensor, "batch query key"], tokens: Int[Tensor, "batch key"]
) -> Int[Tensor, "batch query"]:
    """Return the token whose positions together get the most attention. Ties go to the lowest id."""
    same = (tokens[:, :, None] == tokens[:, None, :]).to(pattern)
    mass = pattern @ same  # at each key, the attention to its token
    best = mass.amax(dim=-1, keepdim=True)
    ids = tokens[:, None].expand(mass.shape)
    return ids.masked_fill(mass < best, torch.iinfo(ids.dtype).max).amin(dim=-1)
