"""Composition scores: how strongly a later head's weights read an earlier head's output."""

from itertools import combinations

import pandas as pd
import torch
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

    Columns: mode, from_layer, from_head, to_layer, to_head, score, baseline. The baseline, 1 / sqrt(d_model), is
    exactly the root mean square of the score when one of the two matrices is rotated at random. Scores are
    scale-invariant, so with one alpha and beta per head every route of a shifted head has the same score. With weights
    per channel, the score is that of the routes with the largest weights. MLPs and norms' scales between the layers are
    left out. A head whose weights are all zero scores 0. A model with one layer gives an empty table. Raises
    `ConfigError` as `qk_circuit` does.
    """
    columns = ["mode", "from_layer", "from_head", "to_layer", "to_head", "score"]
    rows = []
    for earlier, later in combinations(range(model.cfg.n_layers), 2):
        scores = _circuits(model, later, "alpha")
        for mode, reads in {"q": scores, "k": scores.T, "v": _circuits(model, later, "beta")}.items():
            composed = composition_scores(_circuits(model, earlier, "beta"), reads)
            for start, to_heads in enumerate(composed.nan_to_num(0).tolist()):  # 0 / 0: a matrix of zeros
                rows += [(mode, earlier, start, later, end, score) for end, score in enumerate(to_heads)]
    return pd.DataFrame(rows, columns=columns).assign(baseline=model.cfg.d_model**-0.5)


def _circuits(model: Transformer, layer: int, name: str) -> FactoredMatrix:
    """Return W_OV ("beta") or W_QK ("alpha") of a layer's heads, stacked."""
    circuit = {"alpha": qk_circuit, "beta": ov_circuit}[name]
    heads = [
        circuit(model, layer, head, strongest_route(model, layer, head, name)) for head in range(model.cfg.n_heads)
    ]
    return FactoredMatrix(torch.stack([head.A for head in heads]), torch.stack([head.B for head in heads]))
