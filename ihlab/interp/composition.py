"""Composition scores: how strongly a later head's weights read an earlier head's output."""

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import FactoredMatrix
from transformer_lens.utilities import composition_scores

from ihlab.interp.checks import transformer_only
from ihlab.interp.circuits import ov_circuit, qk_circuit, strongest_route
from ihlab.model.transformer import Transformer


@transformer_only
@torch.no_grad()
def composition_table(model: Transformer) -> pd.DataFrame:
    """Return Q-, K- and V-composition of every head with every head of a later layer (Elhage et al. 2021):

        ||W_OV W||_F / (||W_OV||_F ||W||_F),  W = W_QK (q), W_QK^T (k), W_OV (v) of the later head.

    Columns: mode, from_layer, from_head, to_layer, to_head, score, baseline, excess = score - baseline. The
    baseline, 1 / sqrt(d_model), is exactly the root mean square of the score when one of the two matrices is rotated
    at random. Scores are scale-invariant, so with one alpha and beta per head every route of a shifted head has
    the same score. With an alpha and beta per channel, routes differ and are combined:

        sqrt( sum over routes r, s of ||W_OV[r] W[s]||^2 / (sum of ||W_OV[r]||^2  sum of ||W[s]||^2) ),

    which equals the first formula if all routes score the same. MLPs and norms' scales between the layers are left out.
    A head whose weights are all zero scores 0. A model with one layer gives an empty table. Raises `ConfigError` for
    differential attention, and as `require_routes` does.
    """
    columns = ["mode", "from_layer", "from_head", "to_layer", "to_head", "score", "baseline", "excess"]
    baseline = model.cfg.d_model**-0.5
    rows = []
    for later in range(1, model.cfg.n_layers):
        for earlier in range(later):
            for mode in ("q", "k", "v"):
                for start, to_heads in enumerate(_scores(model, earlier, later, mode).tolist()):
                    for end, score in enumerate(to_heads):
                        rows.append((mode, earlier, start, later, end, score, baseline, score - baseline))
    return pd.DataFrame(rows, columns=columns)


def _scores(model: Transformer, earlier: int, later: int, mode: str) -> Float[Tensor, "from_head to_head"]:
    written = _routes(model, earlier, "beta")
    read = _routes(model, later, "beta" if mode == "v" else "alpha")
    read = [matrix.T for matrix in read] if mode == "k" else read
    sizes, of_reads = ([matrix.norm() ** 2 for matrix in routes] for routes in (written, read))
    squares = sum(
        composition_scores(writes, reads).nan_to_num(0) ** 2 * size[:, None] * of_read  # 0 / 0: a matrix of zeros
        for writes, size in zip(written, sizes, strict=True)
        for reads, of_read in zip(read, of_reads, strict=True)
    )
    return (squares / (sum(sizes)[:, None] * sum(of_reads))).nan_to_num(0).sqrt()


def _routes(model: Transformer, layer: int, name: str) -> list[FactoredMatrix]:
    """Return W_OV ("beta") or W_QK ("alpha") of a layer's heads for each route, or the strongest if all score alike."""
    circuit, heads = {"alpha": qk_circuit, "beta": ov_circuit}[name], range(model.cfg.n_heads)
    if model.cfg.shifted and getattr(model.layers[layer].attn, name).ndim > 2:
        columns = getattr(model.layers[layer].attn, name).shape[1]
        return [_stacked([circuit(model, layer, head, route) for head in heads]) for route in range(columns)]
    return [_stacked([circuit(model, layer, head, strongest_route(model, layer, head, name)) for head in heads])]


def _stacked(matrices: list[FactoredMatrix]) -> FactoredMatrix:
    return FactoredMatrix(torch.stack([m.A for m in matrices]), torch.stack([m.B for m in matrices]))
