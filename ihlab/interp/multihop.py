"""Attention of each head in a multi-hop model to the positions that are 1, 2, ... hops away."""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.checks import transformer_only
from ihlab.interp.patterns import patterns_of_kind, probed
from ihlab.measure.batches import EVAL_SEED
from ihlab.measure.heads import mean_attention
from ihlab.model.transformer import Transformer
from tasks import MultiHopTask


def find_hops(
    letters: Int[np.ndarray, "batch pos"], hops: int
) -> Int[np.ndarray, "hops_1 batch pos"]:
    """Return find_j(i) for j = 0 .. hops and every position i of sequences of letters; -1 if there
    is no such position.

    find_0(i) = i, find_1(i) = 1 + the latest earlier position of i's letter, find_j = find_1 of
    find_{j-1} (Sanford et al. 2024, arXiv 2402.09268).
    """
    once = np.full(letters.shape, -1)
    for i in range(1, letters.shape[1]):
        equal = letters[:, i - 1 :: -1] == letters[:, [i]]  # the latest first
        once[:, i] = np.where(equal.any(axis=1), i - equal.argmax(axis=1), -1)
    positions = [np.broadcast_to(np.arange(letters.shape[1]), letters.shape)]
    for _ in range(hops):
        last = positions[-1]
        positions.append(
            np.where(last >= 0, np.take_along_axis(once, np.maximum(last, 0), axis=1), -1)
        )
    return np.stack(positions)


@transformer_only
def hop_scores(
    model: Transformer, task: MultiHopTask, hops: int, rows: int = 64, seed: int = EVAL_SEED
) -> pd.DataFrame:
    """Return each head's attention from position i to find_j(i) and to the position before it, for
    `hops` hops.

    Columns: layer, head, j (0 .. hops), attention and before. `attention` is the mean attention to
    find_j, from effective patterns (beta's gauge fixed), over the positions where find_j exists.
    `before` is the same for find_j - 1: for j = 0 the previous token, for j = 1 the latest copy of
    the token. Raises `ConfigError` as `batch_of` does.
    """
    batch = task.batch_of(hops, rows, np.random.default_rng(seed))
    tokens = torch.from_numpy(batch.inputs.copy()).to(model.embed.weight.device)
    with torch.no_grad():
        patterns = patterns_of_kind(probed(model, tokens), "effective")
    layer, head = np.indices((model.cfg.n_layers, model.cfg.n_heads)).reshape(2, -1)
    tables = []
    for j, position in enumerate(find_hops(batch.inputs[:, 1:], hops)):
        table = pd.DataFrame({"layer": layer, "head": head, "j": j})
        table["attention"] = _attention_to(patterns, position)
        table["before"] = _attention_to(patterns, position - 1)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _attention_to(
    patterns: Float[Tensor, "layer batch head query key"], position: Int[np.ndarray, "batch letter"]
) -> Float[np.ndarray, " layer_head"]:
    """Return each head's mean attention from each letter to the letter at `position`. Negative
    positions are left out.
    """
    sources = torch.zeros(patterns.shape[1], *patterns.shape[-2:], dtype=torch.bool)
    row, i = np.nonzero(position >= 0)
    sources[row, i + 1, position[row, i] + 1] = True  # + 1: the hop token comes before the letters
    return mean_attention(patterns, sources.to(patterns.device)).flatten().cpu().numpy()
