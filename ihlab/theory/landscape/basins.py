"""Basins of the unconstrained gradient flow from the paper's initialisation: which starts become
induction heads.
"""

import numpy as np
import pandas as pd

from ihlab.theory.landscape.forms import evaluate
from tasks.config import require

INDUCTION, NEGATIVE, UNDECIDED = "induction", "negative", "undecided"

LR, TIME = 0.25, 3000.0
"""The step of the gradient flow in time, and the time after which a start is undecided."""


def decide(
    alpha1: np.ndarray, alpha2: np.ndarray, beta1: np.ndarray, beta2: np.ndarray, n_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the basin of each start for unconstrained gradient flow on the exact loss, and the
    time of its decision.

    The loss can be driven to 0 in two ways. The target's logit exceeds the logit of the T - 4
    others by beta1 (a2 - r), and a2 > r if and only if alpha2 > 0. So either

    - "induction": alpha2 > 0 and beta1 > 0, attend to the token that followed and add it; or
    - "negative": alpha2 < 0 and beta1 < 0, attend to all other tokens and subtract them.

    Between them lie alpha2 = 0 and beta1 = 0, where the logits of the others equal the target's and
    the loss is at least log(T - 3). The loss only falls along the flow, so a path whose loss is
    below log(T - 3) crosses neither line again, and its signs then determine its basin. A start
    that is not decided within `TIME`, in steps of `LR`, is "undecided", with time inf.
    """
    point = np.stack([alpha1, alpha2, beta1, beta2])
    decided = np.full(point.shape[1:], np.inf)
    for step in range(round(TIME / LR) + 1):
        value, by = evaluate(point, n_tokens)
        decided[(value < np.log(n_tokens - 3)) & np.isinf(decided)] = step * LR
        point = point - LR * np.array(by)
        if np.isfinite(decided).all():
            break
    signs = np.where((point[1] > 0) & (point[2] > 0), INDUCTION, NEGATIVE)
    return np.where(np.isfinite(decided), signs, UNDECIDED), decided


def basins(n_tokens: int, points: int = 61) -> pd.DataFrame:
    """Return the basins (`decide`) of a grid of starts in the unit square, where alpha and beta sum
    to 1.

    Columns: alpha1, beta1 (centres of the grid's cells), `basin`, and `decided`, the time at which
    the basin is decided. Raises `ConfigError` for T below 5 and for fewer than 2 points.
    """
    require(points >= 2, f"points is {points}, but must be at least 2.")
    centres = (np.arange(points) + 0.5) / points
    alpha1, beta1 = (grid.ravel() for grid in np.meshgrid(centres, centres))
    basin, decided = decide(alpha1, 1 - alpha1, beta1, 1 - beta1, n_tokens)
    return pd.DataFrame({"alpha1": alpha1, "beta1": beta1, "basin": basin, "decided": decided})
