"""Copying scores: whether a head raises the logit of the token it attends to."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.circuits import full_ov_circuit, strongest_route
from ihlab.model.transformer import Transformer

MOST_LOGITS = 2**25
"""Most logits held at once: 128 MB in float32. Other rows follow."""


@torch.no_grad()
def copying(
    model: Transformer,
    cache: ActivationCache,
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    last: int,
) -> Float[Tensor, "layer head"]:
    """Share of a head's direct logit attribution that falls on the token it attends to.

    For each of the `last` queries of a row, the head's own output z W_O is unembedded directly (through the final
    norm's weight; its scale does not alter shares) and the logits are centred over the vocabulary. The score is the
    attended token's share of the positive logits. The attended token is the one whose positions together have the
    most attention. 1 for a perfect copier; a head that writes at random has about 2 / d_vocab (Olsson et al. 2022,
    arXiv 2209.11895, "copying", with shares in place of their ratio).
    """
    z = [cache["z", layer] for layer in range(len(patterns))]
    return attended_share(partial(direct_logits, model), model.cfg.d_vocab, z, patterns, tokens, last)


def direct_logits(
    model: Transformer, layer: int, head: int, z: Float[Tensor, "batch pos head d_head"]
) -> Float[Tensor, "batch pos d_vocab"]:
    """Return a head's own output z W_O, unembedded directly, but for the final norm's scale."""
    read_by = model.tokens_to_residual_directions(torch.arange(model.cfg.d_vocab, device=z.device))
    return z[:, :, head] @ model.layers[layer].attn.W_O[head] @ read_by.T


@torch.no_grad()
def attended_share(
    unembed: Callable[[int, int, Tensor], Tensor],
    d_vocab: int,
    z: Sequence[Float[Tensor, "batch pos head d_head"]],
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    last: int,
) -> Float[Tensor, "layer head"]:
    """Return the score of `copying`, given every layer's z; `unembed(layer, head, z)` gives a head's own logits."""
    at_once = max(1, MOST_LOGITS // (last * d_vocab))
    scores = []
    for layer, pattern in enumerate(patterns):
        chunks = [x.split(at_once) for x in (z[layer][:, -last:], pattern[:, :, -last:], tokens)]
        row = []
        for head in range(pattern.shape[1]):
            of_head = [
                _share(unembed(layer, head, z_rows), pattern_rows[:, head], ids)
                for z_rows, pattern_rows, ids in zip(*chunks, strict=True)
            ]
            row.append(torch.cat(of_head).mean())
        scores.append(torch.stack(row))
    return torch.stack(scores)


def _share(
    logits: Float[Tensor, "batch query d_vocab"],
    pattern: Float[Tensor, "batch query key"],
    tokens: Int[Tensor, "batch key"],
) -> Float[Tensor, "batch query"]:
    """Return the attended token's share of the positive centred logits."""
    mass = torch.zeros_like(logits)
    ids = tokens.to(logits.device)[:, None].expand_as(pattern)
    mass.scatter_add_(2, ids, pattern.to(logits))
    raised = (logits - logits.mean(dim=-1, keepdim=True)).relu()
    on_attended = raised.gather(2, mass.argmax(dim=-1, keepdim=True))[..., 0]
    return on_attended / raised.sum(dim=-1).clamp_min(torch.finfo(logits.dtype).tiny)


@torch.no_grad()
def eigenvalue_copying(model: Transformer) -> Float[Tensor, "layer head"]:
    """sum Re(lambda) / sum |lambda| over the eigenvalues of W_E W_OV W_U (Elhage et al. 2021): 1 copies, -1 suppresses.

    A shifted head's W_OV carries its largest beta: with beta = (-1, 0) it suppresses what W_V W_O copies. The product
    has low rank: at most d_head eigenvalues are nonzero, and only those are computed. 0 for a head that writes nothing.
    """
    return torch.stack(
        [
            torch.stack([_copied(model, layer, head) for head in range(model.cfg.n_heads)])
            for layer in range(model.cfg.n_layers)
        ]
    )


def _copied(model: Transformer, layer: int, head: int) -> Tensor:
    values = full_ov_circuit(model, layer, head, strongest_route(model, layer, head, "beta")).eigenvalues
    size = values.abs().sum()
    return torch.where(size > 0, values.real.sum() / size, 0)
