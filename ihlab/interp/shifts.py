"""What the shifts of a trained model have become, apart from what is a matter of convention.

(alpha, W_K) -> (c alpha, W_K / c) leaves a model unchanged for any c != 0, and so does (beta, W_V) ->
(c beta, W_V / c): sizes and common signs of alpha and beta mean nothing on their own. What means something is the
direction of (alpha1, alpha2) up to sign. The paper's Table 5 compares alpha1 with alpha2 themselves, which c = -1
turns round. Where alpha1 + alpha2 > 0, as at the start of training (the sum is 1), that agrees with comparing their
sizes.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from ihlab.model.transformer import Transformer
from tasks.config import require

COLUMNS = ("own", "previous")


def direction(weight: Float[np.ndarray, "*head window"]) -> Float[np.ndarray, "*head window"]:
    """Each row scaled to length 1, signed so that its largest entry in size is positive; NaN for a row of zeros.

    Equal for w and c w, c != 0. Of entries equal in size the first is made positive.
    """
    weight = np.asarray(weight, dtype=float)
    largest = np.abs(weight).argmax(axis=-1, keepdims=True)
    sign = np.sign(np.take_along_axis(weight, largest, axis=-1))
    with np.errstate(invalid="ignore"):
        return sign * weight / np.linalg.norm(weight, axis=-1, keepdims=True)


def angle(weight: Float[np.ndarray, "*head 2"]) -> Float[np.ndarray, "*head"]:
    """The angle of (w1, w2) in [0, pi), lines and not arrows being told apart.

    0: own token only; pi / 2: token before only; below pi / 2 the two have one sign, above it opposite ones.
    Angles near 0 and near pi are neighbours.
    """
    line = direction(weight)
    turned = np.arctan2(line[..., 1], line[..., 0])
    turned = np.where(turned < 0, turned + np.pi, turned)
    return np.where(turned >= np.pi, 0.0, turned)


def shift_report(model: Transformer) -> pd.DataFrame:
    """Every key/value head's alpha and beta, as stored and with the gauge fixed: a row for each.

    - layer, head (key/value head), alpha1, alpha2, ..., beta1, beta2, ...: as stored;
    - alpha1_unit, ..., beta1_unit, ...: the `direction`.

    With windows of two, as in the paper, for alpha and likewise for beta:

    - alpha_angle: the `angle`; alpha_ratio: alpha2 / alpha1 (inf where alpha1 is 0);
    - alpha_share: |alpha2| / (|alpha1| + |alpha2|);
    - alpha_larger: "own" or "previous", the larger in size (previous where they are equal);
    - alpha_raw: the same by the paper's count, alpha1 > alpha2 or not;
    - alpha_flips: whether c = -1 turns alpha_raw round. It does unless alpha1 = alpha2.

    All but the stored numbers, raw and flips are the same for (c alpha, W_K / c) and (c beta, W_V / c).
    Raises `ConfigError` for a model without shift.
    """
    require(
        model.cfg.shifted,
        f"The model's attention is {model.cfg.attention!r}, which has no alpha and beta: they need 'kv_shift'.",
    )
    tables = []
    for layer, block in enumerate(model.layers):
        weights = {name: getattr(block.attn, name).detach().double().cpu().numpy() for name in ("alpha", "beta")}
        columns: dict[str, Any] = {"layer": layer, "head": np.arange(model.cfg.kv_heads)}
        for name, weight in weights.items():
            columns |= {f"{name}{column + 1}": weight[:, column] for column in range(weight.shape[1])}
        for name, weight in weights.items():
            columns |= {f"{name}{column + 1}_unit": line for column, line in enumerate(direction(weight).T)}
            if weight.shape[1] == 2:
                columns |= {f"{name}_{what}": values for what, values in _of_two(weight).items()}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _of_two(weight: Float[np.ndarray, "head 2"]) -> dict[str, np.ndarray]:
    """What is said of a pair of weights."""
    own, previous = weight.T
    size = np.abs(weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(own == 0, np.where(previous == 0, np.nan, np.inf), previous / own)
        share = size[:, 1] / size.sum(axis=1)
    return {
        "angle": angle(weight),
        "ratio": ratio,
        "share": share,
        "larger": np.where(size[:, 0] > size[:, 1], *COLUMNS),
        "raw": np.where(own > previous, *COLUMNS),
        "flips": own != previous,
    }


def quadrant_table(models: Iterable[Transformer]) -> pd.DataFrame:
    """Table 5 of arXiv 2411.19574 over all key/value heads of some models: its raw count beside one without gauge.

    Four rows, key and value "own" or "previous". `raw` counts heads by alpha1 > alpha2 and beta1 > beta2, as the
    paper does; `gauge_free` by |alpha1| > |alpha2| and |beta1| > |beta2|; `flipped` is what raw would be had
    every head's alpha and beta the other sign. Raises `ConfigError` for a model without shift, a window that is
    not 2, or no model at all.
    """
    reports = []
    for model in models:
        report = shift_report(model)  # first: a model without shift has no window to speak of
        window = model.cfg.shift_window
        require(window == 2, f"The model's shift_window is {window}, but Table 5 compares two columns.")
        reports.append(report)
    require(bool(reports), "There is no model to count the heads of.")
    heads = pd.concat(reports, ignore_index=True)
    rows = []
    for key in COLUMNS:
        for value in COLUMNS:
            row: dict[str, Any] = {"key": key, "value": value}
            row["raw"] = int(((heads["alpha_raw"] == key) & (heads["beta_raw"] == value)).sum())
            row["gauge_free"] = int(((heads["alpha_larger"] == key) & (heads["beta_larger"] == value)).sum())
            row["flipped"] = int(((_flipped(heads, "alpha") == key) & (_flipped(heads, "beta") == value)).sum())
            rows.append(row)
    return pd.DataFrame(rows)


def _flipped(heads: pd.DataFrame, name: str) -> np.ndarray:
    """The raw comparison under c = -1."""
    return np.where(-heads[f"{name}1"] > -heads[f"{name}2"], *COLUMNS)
