"""The two-layer induction circuit: a previous-token head that K-composes with a later induction
head.
"""

from itertools import combinations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor
from transformer_lens import FactoredMatrix
from transformer_lens.utilities import composition_scores

from ihlab.interp.ablation import Head, replacer, row_scores, tokens_of, totals
from ihlab.interp.checks import transformer_only
from ihlab.interp.circuits import ov_circuit, qk_circuit, strongest_route
from ihlab.interp.head_model import OurModel
from ihlab.interp.heads import PREFIX_LEAST, head_scores
from ihlab.interp.patching import without_key_path
from ihlab.measure.heads import follows, mean_attention
from ihlab.measure.probe import STRIPE_REPEATS
from ihlab.model.transformer import Transformer
from tasks import Batch

PREVIOUS_LEAST = 0.5
"""Minimum mean attention to the previous token of a previous-token head."""

FALL_LEAST = 0.05
"""A pair is confirmed if ablating its path lowers the later head's induction_stripe by at least a
twentieth. Several previous-token heads often share the work and compensate for an ablated one, so a
higher threshold would miss pairs."""


@transformer_only
def find_induction_pair(model: Transformer, batch: Batch | None = None) -> pd.DataFrame:
    """Score every pair of an earlier and a later head. Pairs are sorted by stripe_fall, largest
    first.

    Columns: from_layer, from_head, to_layer, to_head; the earlier head's previous_token and the
    later head's prefix_matching; k_composition and its baseline; the later head's induction_stripe,
    stripe_without (the same with the path ablated, see `without_key_path`) and their difference
    stripe_fall; with a task's `batch` also loss_rise and accuracy_fall with the path ablated.
    `pair` is true if previous_token reaches `PREVIOUS_LEAST`, prefix_matching `PREFIX_LEAST`, and
    stripe_fall `FALL_LEAST` times induction_stripe. All scores are computed from effective patterns.

    A model with one layer gives an empty table. Raises `ConfigError` as
    `ablate_heads` and `head_scores` do.
    """
    scores = head_scores(model).query("pattern == 'effective'").set_index(["layer", "head"])
    pairs = _k_composition(model)
    senders = list(zip(pairs["from_layer"], pairs["from_head"], strict=True))
    receivers = list(zip(pairs["to_layer"], pairs["to_head"], strict=True))
    paths = list(zip(senders, receivers, strict=True))
    probe = OurModel(model).probe_rows(STRIPE_REPEATS, 16, None, None, 0)
    pairs["previous_token"] = scores["previous_token"].reindex(senders).to_numpy()
    pairs["prefix_matching"] = scores["prefix_matching"].reindex(receivers).to_numpy()
    pairs["induction_stripe"] = scores["induction_stripe"].reindex(receivers).to_numpy()
    stripes = [_stripe_without(model, probe, *path) for path in paths]
    pairs["stripe_without"] = np.array(stripes, dtype=float)
    pairs["stripe_fall"] = pairs["induction_stripe"] - pairs["stripe_without"]
    if batch is not None:
        whole = totals(row_scores(model, batch))
        ablated = [_task_without(model, batch, *path) for path in paths]
        tasks = pd.DataFrame(ablated, columns=["loss", "accuracy"], dtype=float)
        pairs["loss_rise"] = tasks["loss"] - whole["loss"]
        pairs["accuracy_fall"] = whole["accuracy"] - tasks["accuracy"]
    alike = (pairs["previous_token"] >= PREVIOUS_LEAST) & (pairs["prefix_matching"] >= PREFIX_LEAST)
    pairs["pair"] = alike & (pairs["stripe_fall"] >= FALL_LEAST * pairs["induction_stripe"])
    return pairs.sort_values("stripe_fall", ascending=False, kind="stable", ignore_index=True)


@torch.no_grad()
def _k_composition(model: Transformer) -> pd.DataFrame:
    """Return K-composition of every head with every head of a later layer (Elhage et al. 2021):

        ||W_OV W_QK^T||_F / (||W_OV||_F ||W_QK||_F)

    `baseline`, 1 / sqrt(d_model), is the root mean square of the score if one of the matrices is
    rotated at random. With one alpha and beta per head every route has the same score; with weights
    per channel it is the score of the routes with the largest weights. A head whose weights are all
    zero scores 0.
    """

    def stacked(layer: int, name: str) -> FactoredMatrix:
        circuit = {"alpha": qk_circuit, "beta": ov_circuit}[name]
        left, right = [], []
        for head in range(model.cfg.n_heads):
            matrix = circuit(model, layer, head, strongest_route(model, layer, head, name))
            left.append(matrix.A)
            right.append(matrix.B)
        return FactoredMatrix(torch.stack(left), torch.stack(right))

    rows = []
    for earlier, later in combinations(range(model.cfg.n_layers), 2):
        scores = composition_scores(stacked(earlier, "beta"), stacked(later, "alpha").T).nan_to_num(
            0
        )  # 0 / 0
        for (start, end), score in np.ndenumerate(scores.numpy()):
            rows.append((earlier, start, later, end, float(score)))
    columns = ["from_layer", "from_head", "to_layer", "to_head", "k_composition"]
    return pd.DataFrame(rows, columns=columns).assign(baseline=model.cfg.d_model**-0.5)


def _stripe_without(
    model: Transformer, probe: Int[Tensor, "rows pos"], sender: Head, receiver: Head
) -> float:
    """Return the receiver's induction_stripe with the path ablated."""
    pattern, _ = without_key_path(model, probe, sender, receiver)
    return mean_attention(pattern[None, :, None], follows(probe)).item()


def _task_without(
    model: Transformer, batch: Batch, sender: Head, receiver: Head
) -> dict[str, float]:
    """Return the task's loss and accuracy with the path ablated."""
    layer, head = receiver
    opened = OurModel(model)
    tokens = opened.on_device(tokens_of(batch))
    _, z = without_key_path(model, tokens, sender, receiver)
    values = z[:, :, None].expand(-1, -1, opened.n_heads, -1)
    with opened.replacing({layer: replacer([head], values)}):
        return totals(row_scores(opened, batch))
