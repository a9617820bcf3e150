"""Copying scores: whether a head raises the logit of the token it attends to."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.circuits import full_ov_circuit, strongest_route
from ihlab.model.transformer import Transformer


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
    read_by = model.tokens_to_residual_directions(torch.arange(model.cfg.d_vocab, device=tokens.device))
    scores = []
    for layer, pattern in enumerate(patterns):
        z, W_O = cache["z", layer][:, -last:], model.layers[layer].attn.W_O
        row = []
        for head in range(pattern.shape[1]):
            mass = torch.zeros(*z.shape[:2], model.cfg.d_vocab, dtype=z.dtype, device=z.device)
            mass.scatter_add_(2, tokens[:, None].expand(-1, last, -1), pattern[:, head, -last:])
            logits = z[:, :, head] @ W_O[head] @ read_by.T
            raised = (logits - logits.mean(dim=-1, keepdim=True)).relu()
            on_attended = raised.gather(2, mass.argmax(dim=-1, keepdim=True))[..., 0]
            row.append((on_attended / raised.sum(dim=-1).clamp_min(torch.finfo(z.dtype).tiny)).mean())
        scores.append(torch.stack(row))
    return torch.stack(scores)


@torch.no_grad()
def eigenvalue_copying(model: Transformer) -> Float[Tensor, "layer head"]:
    """sum Re(lambda) / sum |lambda| over the eigenvalues of W_E W_OV W_U (Elhage et al. 2021): 1 copies, -1 suppresses.

    A shifted head's W_OV carries its largest beta: with beta = (-1, 0) it suppresses what W_V W_O copies. The product
    has low rank: at most d_head eigenvalues are nonzero, and only those are computed. 0 for a head that writes nothing.
    """
    return torch.stack(
        [
            torch.stack([_share(model, layer, head) for head in range(model.cfg.n_heads)])
            for layer in range(model.cfg.n_layers)
        ]
    )


def _share(model: Transformer, layer: int, head: int) -> Tensor:
    values = full_ov_circuit(model, layer, head, strongest_route(model, layer, head, "beta")).eigenvalues
    size = values.abs().sum()
    return torch.where(size > 0, values.real.sum() / size, 0)
