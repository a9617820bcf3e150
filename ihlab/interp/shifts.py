"""Report a trained model's alpha and beta, as stored and with the gauge fixed.

(alpha, W_K) -> (c alpha, W_K / c) leaves a model unchanged for any c != 0, and so does (beta, W_V)
-> (c beta, W_V / c): the norm and the overall sign of alpha, or beta, have no meaning. Only the
direction of (alpha1, alpha2) up to sign is meaningful. Table 5 of arXiv 2411.19574 compares alpha1
with alpha2; c = -1 reverses the result. If alpha1 + alpha2 > 0, as at the start of training (the
sum is 1), Table 5 agrees with comparing absolute values.
"""

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from ihlab.interp.checks import transformer_only
from ihlab.model.transformer import Transformer
from tasks.config import require

COLUMNS = ("own", "previous")


def angle(weight: Float[np.ndarray, "head 2"]) -> Float[np.ndarray, " head"]:
    """Return the angle of (w1, w2) modulo pi, in [0, pi). A row of zeros gives NaN.

    The result is the same for w and c w, c != 0. 0 means own token only, pi / 2 previous token
    only. Below pi / 2 w1 and w2 have the same sign, above it opposite signs. Angles near 0 and near
    pi are close to each other.
    """
    modulo = np.arctan2(weight[:, 1], weight[:, 0]) % np.pi
    modulo = np.where(modulo >= np.pi, 0.0, modulo)
    return np.where(weight.any(axis=1), modulo, np.nan)


@transformer_only
def shift_report(model: Transformer) -> pd.DataFrame:
    """Return every key/value head's alpha and beta, as stored and with the gauge fixed, in one row
    per head.

    - layer, head (key/value head), alpha1, alpha2, ..., beta1, beta2, ...: as stored.

    With windows of two, as in arXiv 2411.19574, for alpha and likewise for beta:

    - alpha_angle: the `angle`;
    - alpha_share: |alpha2| / (|alpha1| + |alpha2|);
    - alpha_larger: "own" or "previous", the larger in absolute value (previous if they are equal);
    - alpha_raw: the same by the comparison of Table 5: "own" if alpha1 > alpha2, else "previous".

    All columns except stored weights, alpha_raw and beta_raw are equal for (c alpha, W_K / c) and
    (c beta, W_V / c). A model that shifts only keys, or only values, has only their columns. Gamma,
    the query shift, is not reported. Raises `ConfigError` for a model without alpha and beta.
    """
    learned = [name for name in ("alpha", "beta") if name in model.cfg.learned_shifts]
    require(
        bool(learned),
        f"The model's attention is {model.cfg.attention!r}, which has no alpha and beta; 'kv_shift' has both.",
    )
    tables = []
    for layer, block in enumerate(model.layers):
        weights = {
            name: getattr(block.attn, name).detach().double().cpu().numpy() for name in learned
        }
        columns: dict[str, Any] = {"layer": layer, "head": np.arange(model.cfg.kv_heads)}
        for name, weight in weights.items():
            for number, column in enumerate(weight.T, 1):
                columns[f"{name}{number}"] = column
        for name, weight in weights.items():
            if weight.shape[1] == 2:
                columns |= _of_two(name, weight)
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _of_two(name: str, weight: Float[np.ndarray, "head 2"]) -> dict[str, np.ndarray]:
    size = np.abs(weight)
    with np.errstate(invalid="ignore"):
        share = size[:, 1] / size.sum(axis=1)
    return {
        f"{name}_angle": angle(weight),
        f"{name}_share": share,
        f"{name}_larger": np.where(size[:, 0] > size[:, 1], *COLUMNS),
        f"{name}_raw": np.where(weight[:, 0] > weight[:, 1], *COLUMNS),
    }


def quadrant_table(models: Iterable[Transformer]) -> pd.DataFrame:
    """Count the key/value heads of all models as in Table 5 of arXiv 2411.19574, raw and
    gauge-free.

    The table has four rows: key and value are "own" or "previous". `raw` counts heads by alpha1 >
    alpha2 and beta1 > beta2, as the paper does; `gauge_free` by |alpha1| > |alpha2| and |beta1| >
    |beta2|; `flipped` is raw with the sign of every head's alpha and beta flipped. Raises
    `ConfigError` for a model that lacks alpha or beta, a window that is not 2, and if there are no
    models.
    """
    reports = []
    for model in models:
        reports.append(shift_report(model))
        cfg = model.cfg
        require(
            cfg.learns_both and cfg.shift_window == 2,
            f"The model's attention is {cfg.attention!r} and its shift_window is {cfg.shift_window}, but Table 5 "
            "compares two columns of both alpha and beta.",
        )
    require(bool(reports), "There is no model, so there are no heads to count.")
    heads = pd.concat(reports, ignore_index=True)
    for name in ("alpha", "beta"):  # the raw comparison under c = -1
        heads[f"{name}_flipped"] = np.where(-heads[f"{name}1"] > -heads[f"{name}2"], *COLUMNS)
    table = pd.DataFrame(product(COLUMNS, COLUMNS), columns=["key", "value"])
    every = pd.MultiIndex.from_frame(table)
    for name, kind in {"raw": "raw", "gauge_free": "larger", "flipped": "flipped"}.items():
        counts = heads.groupby([f"alpha_{kind}", f"beta_{kind}"]).size()
        table[name] = counts.reindex(every, fill_value=0).to_numpy()
    return table
