"""Ablate all heads that match prefixes together, and compare with equally many other heads.

A redundant head costs little when ablated alone, and a random head can cost more than twice its error. The effect of
induction heads shows when all are ablated, compared with equally many random heads, from any layers or the same ones.
"""

from typing import Any

import numpy as np
import pandas as pd

from ihlab.interp.ablation import NEEDED, CleanRun, Head, Track, every_head
from ihlab.interp.circuits import require_heads
from ihlab.interp.head_model import HeadModel
from ihlab.interp.sources import opened_model
from tasks import Batch
from tasks.config import require

CONTROLS = 3
"""Number of draws of each kind of control: random heads, and random heads of the same layers."""


def ablate_together(
    model: Any,
    batch: Batch,
    heads: Any,
    how: str = "mean",
    controls: int = CONTROLS,
    seed: int = 0,
    attention_mask: Any = None,
    track: Track = iter,
) -> pd.DataFrame:
    """Ablate heads together, and random sets of equally many other heads as controls. Return one row per set.

    `heads`: pairs (layer, head), or a table with the columns layer, head and matches_prefix
    (`locate_induction_heads`), of which only matching heads are used. Columns:

    - `heads`: "these", the given heads; "random", equally many others; or "same layers", equally many others from each
      of the same layers (all others, if a layer has fewer);
    - `draw`: 0, 1, ... of `controls` draws; `n`: the number of heads in the set;
    - `loss`, `loss_rise`, `loss_rise_error`, `accuracy_fall`, as in `ablation_sweep`.

    `track` is as in `ablation_sweep`. Raises `ConfigError` without heads, and as `ablate_heads` does.
    """
    opened = opened_model(model, NEEDED)
    these = _pairs(opened, heads)
    require(bool(these), "There are no heads to ablate: none matches prefixes.")
    require(controls >= 0, f"controls is {controls}, but must be at least 0.")
    clean = CleanRun(opened, batch, attention_mask)
    rng = np.random.default_rng(seed)
    others = [head for head in every_head(opened) if head not in set(these)]
    sets: list[tuple[str, int, list[Head]]] = [("these", 0, these)]
    for draw in range(controls):
        sets.append(("random", draw, _some(others, len(these), rng)))
        near = [
            head
            for layer in sorted({layer for layer, _ in these})
            for head in _some([o for o in others if o[0] == layer], sum(at == layer for at, _ in these), rng)
        ]
        sets.append(("same layers", draw, near))
    whole = clean.whole["loss"].sum() / clean.whole["targets"].sum()
    rows = []
    for name, draw, chosen in track(sets):
        effect = clean.effect(chosen, how, seed)
        rows.append({"heads": name, "draw": draw, "n": len(chosen), "loss": whole + effect["loss_rise"], **effect})
    return pd.DataFrame(rows)


def _pairs(size: HeadModel, heads: Any) -> list[Head]:
    """Return the distinct pairs (layer, head). Raises `ConfigError` for anything but heads of the model."""
    if isinstance(heads, pd.DataFrame):
        found = heads[heads["matches_prefix"]] if "matches_prefix" in heads else heads
        heads = found[["layer", "head"]].to_numpy()
    pairs = heads.tolist() if isinstance(heads, np.ndarray) else list(heads)
    require_heads(size, pairs)
    return list(dict.fromkeys((int(layer), int(head)) for layer, head in pairs))


def _some(heads: list[Head], n: int, rng: np.random.Generator) -> list[Head]:
    """Draw n of the heads, or all if there are fewer."""
    return [heads[i] for i in sorted(rng.permutation(len(heads))[:n])]
