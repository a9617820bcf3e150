"""Copying scores: whether a head raises the logit of the token it attends to."""

from collections.abc import Sequence

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
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    last: int,
) -> Float[Tensor, "layer head"]:
    """Return the fraction of a head's direct logit attribution that falls on the token it attends to.

    For each of the `last` queries of a sequence, the head's own output z W_O is unembedded directly (through the final
    norm's weight; its scale does not change fractions) and the logits are centred over the vocabulary. The score is the
    attended token's fraction of the positive logits. The attended token is the one whose positions together have the
    most attention. 1 for a perfect copier; a head that writes at random has about 2 / d_vocab (Olsson et al. 2022,
    arXiv 2209.11895, "copying", with fractions in place of their ratio). `z` holds every layer's z.
    """
    at_once = max(1, MOST_LOGITS // (last * model.d_vocab))
    scores = []
    for layer, pattern in enumerate(patterns):
        chunks = [x.split(at_once) for x in (z[layer][:, -last:], pattern[:, :, -last:], tokens)]
        for head in range(pattern.shape[1]):
            of_head = [
                _fraction(model.direct_logits(layer, head, z_rows), pattern_rows[:, head], ids)
                for z_rows, pattern_rows, ids in zip(*chunks, strict=True)
            ]
            scores.append(torch.cat(of_head).mean())
    return torch.stack(scores).unflatten(0, (len(patterns), -1))


def _fraction(
    logits: Float[Tensor, "batch query d_vocab"],
    pattern: Float[Tensor, "batch query key"],
    tokens: Int[Tensor, "batch key"],
) -> Float[Tensor, "batch query"]:
    """Return the attended token's fraction of the positive centred logits."""
    mass = torch.zeros_like(logits)
    ids = tokens.to(logits.device)[:, None].expand_as(pattern)
    mass.scatter_add_(2, ids, pattern.to(logits))
    raised = (logits - logits.mean(dim=-1, keepdim=True)).relu()
    on_attended = raised.gather(2, mass.argmax(dim=-1, keepdim=True))[..., 0]
    return on_attended / raised.sum(dim=-1).clamp_min(torch.finfo(logits.dtype).tiny)
