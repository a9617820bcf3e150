"""The loss over the square of Figure 2, where alpha2 = 1 - alpha1 and beta2 = 1 - beta1."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from ihlab.theory.landscape.forms import evaluate
from tasks.config import require


@dataclass(frozen=True)
class Field:
    """The loss and its slope on a grid of starts, with beta1 along the rows and alpha1 along the
    columns.
    """

    alpha1: Float[np.ndarray, " columns"]
    beta1: Float[np.ndarray, " rows"]
    loss: Float[np.ndarray, "rows columns"]
    slope_alpha1: Float[np.ndarray, "rows columns"]
    slope_beta1: Float[np.ndarray, "rows columns"]

    def table(self) -> pd.DataFrame:
        """Return a row for each point: alpha1, beta1, loss, slope_alpha1, slope_beta1."""
        alpha1, beta1 = np.meshgrid(self.alpha1, self.beta1)
        grids = vars(self) | {"alpha1": alpha1, "beta1": beta1}
        return pd.DataFrame({name: grid.ravel() for name, grid in grids.items()})


def field(
    form: str = "exact",
    n_tokens: int | None = None,
    other: int | float | None = None,
    points: int = 1000,
    low: int | float = 0.0,
    high: int | float = 1.0,
) -> Field:
    """Return the loss and its slope on a grid of `points` values in [low, high] for each of alpha1
    and beta1.

    On the square alpha2 = 1 - alpha1, so the slope in alpha1 is dL/dalpha1 - dL/dalpha2, and
    likewise in beta1. Raises `ConfigError` as `loss` does, and for fewer than 2 points.
    """
    require(points >= 2, f"points is {points}, but must be at least 2.")
    axis = np.linspace(low, high, points)
    beta1 = axis[:, None]
    value, by = evaluate((axis, 1 - axis, beta1, 1 - beta1), n_tokens, form, other)
    return Field(axis, axis, value, by.alpha1 - by.alpha2, by.beta1 - by.beta2)
