"""QK and OV circuits: the matrices that decide where a head attends and what it writes (Elhage et
al. 2021).

Matrices act on row vectors, as in TransformerLens: scores are x_q W_QK x_k^T, outputs x W_OV. The
norms' learned weights and a LayerNorm's centring are folded in; their scales and biases are not.
Rotary embeddings and ALiBi are left out, so W_QK gives the score of two tokens at the same
position. Gamma, the query shift, is left out too.
"""

import math
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import FactoredMatrix

from ihlab.interp.checks import require_heads, require_routes, transformer_only
from ihlab.model.norm import LayerNorm, RMSNorm
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks.config import require


@transformer_only
def qk_circuit(model: Transformer, layer: int, head: int, route: int = 0) -> FactoredMatrix:
    """Return W_QK = diag(w) W_Q (alpha[route] W_K)^T diag(w) / sqrt(d_head)  [d_model, d_model], w
    = norm weight, times `rotary_scale` squared with rotary embeddings.

    `route` is the column of alpha: 0 for the key's own token, 1 for the token before it. A vanilla
    head has route 0 only, without a weight. Raises `ConfigError` for a head or route that does not
    exist, for queries and keys that pass a norm, and as `require_routes` does.
    """
    group, attn = _group(model, layer, head), model.layers[layer].attn
    require(
        not model.cfg.qk_norm,
        "The model has qk_norm=True: a norm stands between queries, keys and scores, and there is no W_QK.",
    )
    weight = _route(attn, "alpha", group, route)
    scale = weight / math.sqrt(attn.W_Q.shape[-1])
    if attn.rotary is not None:
        scale = scale * model.cfg.rotary_scale**2
    queries, keys = (_behind_norm(model, layer, w) for w in (attn.W_Q[head], attn.W_K[group]))
    return FactoredMatrix(queries * scale, keys.T)


@transformer_only
def ov_circuit(model: Transformer, layer: int, head: int, route: int = 0) -> FactoredMatrix:
    """Return W_OV = diag(w) (beta[route] W_V) W_O  [d_model, d_model]; see `qk_circuit` for
    `route`.

    An output gate is left out.
    """
    group, attn = _group(model, layer, head), model.layers[layer].attn
    weight = _route(attn, "beta", group, route)
    return FactoredMatrix(_behind_norm(model, layer, attn.W_V[group]) * weight, attn.W_O[head])


def strongest_route(model: Transformer, layer: int, head: int, name: str) -> int:
    """Return the column of a head's "alpha" or "beta" with the largest absolute weight; 0 for a
    vanilla head.
    """
    group, attn = _group(model, layer, head), model.layers[layer].attn
    if not _is_shifted(attn):
        return 0
    routes = getattr(attn, name)[group]
    return int(routes.reshape(len(routes), -1).norm(dim=1).argmax())


@own_settings()
@torch.no_grad()
def eigenvalue_copying(model: Transformer) -> Float[Tensor, "layer head"]:
    """Return sum Re(lambda) / sum |lambda| over the eigenvalues of W_E W_OV W_U (Elhage et al.
    2021).

    1 means copying, -1 suppression. A shifted head's W_OV includes its largest beta: with beta =
    (-1, 0) it suppresses what W_V W_O copies. The product has low rank: at most d_head eigenvalues
    are nonzero. Only those are computed.
    """
    raised = model.tokens_to_residual_directions(
        torch.arange(model.cfg.d_vocab, device=model.embed.weight.device)
    ).T
    fractions = []
    for layer, head in product(range(model.cfg.n_layers), range(model.cfg.n_heads)):
        ov = ov_circuit(model, layer, head, strongest_route(model, layer, head, "beta"))
        written = FactoredMatrix(model.W_E @ ov.A, ov.B @ raised)
        eigenvalues = written.eigenvalues
        size = eigenvalues.abs().sum()
        fractions.append(
            torch.where(size > 0, eigenvalues.real.sum() / size, 0)
        )  # 0: writes nothing
    return torch.stack(fractions).unflatten(0, (model.cfg.n_layers, model.cfg.n_heads))


def _behind_norm(
    model: Transformer, layer: int, weight: Float[Tensor, "d_model d_head"]
) -> Float[Tensor, "d_model d_head"]:
    """Fold the layer's norm, except its scale, into a weight that reads the normalised residual
    stream.
    """
    norm = model.layers[layer].ln1
    if not isinstance(norm, RMSNorm):
        return weight
    read = norm.w[:, None] * weight
    return read - read.mean(dim=0) if isinstance(norm, LayerNorm) else read


def _group(model: Transformer, layer: int, head: int) -> int:
    require_routes(model.cfg)
    require_heads(model.cfg, [(layer, head)])
    return head // (model.cfg.n_heads // model.cfg.kv_heads)


def _is_shifted(attn: Any) -> bool:
    return bool(getattr(attn, "shifted", False))  # a custom attention may not say


def _route(attn: Any, name: str, group: int, route: int) -> Tensor | float:
    """Return the weight of a key/value head's route: an entry of its alpha or beta, or 1 without a
    shift.
    """
    if not _is_shifted(attn):
        require(route == 0, f"There is no route {route}: a vanilla head has route 0 only.")
        return 1.0
    weights: Tensor = getattr(attn, name)[group]
    last = len(weights) - 1
    require(0 <= route <= last, f"There is no route {route}: {name} has columns 0 to {last}.")
    return weights[route]
