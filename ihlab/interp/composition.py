"""Composition scores: how much of an earlier head's output a later head's weights read."""

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import FactoredMatrix
from transformer_lens.utilities import composition_scores

from ihlab.interp.circuits import ov_circuit, qk_circuit, strongest_route
from ihlab.model.transformer import Transformer

MODES = ("q", "k", "v")


@torch.no_grad()
def composition_table(model: Transformer) -> pd.DataFrame:
    """Q-, K- and V-composition of every head with every head of a later layer (Elhage et al. 2021):

        ||W_OV W||_F / (||W_OV||_F ||W||_F),  W = W_QK (q), W_QK^T (k), W_OV (v) of the later head.

    Columns: mode, from_layer, from_head, to_layer, to_head, score, baseline, excess = score - baseline. The
    baseline, 1 / sqrt(d_model), is exactly the root mean square of the score when one of the two matrices is rotated
    at random. Scores are scale-invariant, so alpha and beta do not enter: every route of a shifted head has the same
    composition. MLPs and norms' scales between the layers are left out. A head that is all zeros scores 0; a model
    with one layer gives an empty table.
    """
    columns = ["mode", "from_layer", "from_head", "to_layer", "to_head", "score", "baseline", "excess"]
    baseline = model.cfg.d_model**-0.5
    rows = []
    for later in range(1, model.cfg.n_layers):
        for earlier in range(later):
            for mode in MODES:
                scores = _scores(model, earlier, later, mode)
                for (start, end), score in zip(_pairs(model.cfg.n_heads), scores.flatten().tolist(), strict=True):
                    rows.append((mode, earlier, start, later, end, score, baseline, score - baseline))
    return pd.DataFrame(rows, columns=columns)


def _scores(model: Transformer, earlier: int, later: int, mode: str) -> Float[Tensor, "from_head to_head"]:
    writes, reads = _ov(model, earlier), _ov(model, later) if mode == "v" else _qk(model, later)
    return composition_scores(writes, reads.T if mode == "k" else reads).nan_to_num(0)  # 0 / 0: a matrix of zeros


def _ov(model: Transformer, layer: int) -> FactoredMatrix:
    routes = [strongest_route(model, layer, head, "beta") for head in range(model.cfg.n_heads)]
    return _stacked([ov_circuit(model, layer, head, route) for head, route in enumerate(routes)])


def _qk(model: Transformer, layer: int) -> FactoredMatrix:
    routes = [strongest_route(model, layer, head, "alpha") for head in range(model.cfg.n_heads)]
    return _stacked([qk_circuit(model, layer, head, route) for head, route in enumerate(routes)])


def _stacked(matrices: list[FactoredMatrix]) -> FactoredMatrix:
    return FactoredMatrix(torch.stack([m.A for m in matrices]), torch.stack([m.B for m in matrices]))


def _pairs(n_heads: int) -> list[tuple[int, int]]:
    return [(start, end) for start in range(n_heads) for end in range(n_heads)]
