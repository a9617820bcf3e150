"""What a head does: where it looks, and how its shift weights move in training."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

from ihlab.plots.style import BLUE, ORANGE, printed

SHIFT_LINES = {
    "alpha1": (BLUE, "-", r"$\alpha_1$ key, this token"),
    "alpha2": (BLUE, "--", r"$\alpha_2$ key, token before"),
    "beta1": (ORANGE, "-", r"$\beta_1$ value, this token"),
    "beta2": (ORANGE, "--", r"$\beta_2$ value, token before"),
}


@printed
def attention_pattern(axes: Axes, pattern: Float[np.ndarray, "query key"], tokens: Sequence[int | str]) -> None:
    """One head's pattern on one row: darker is more attention, tokens on both sides."""
    axes.imshow(pattern, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    places = range(len(tokens))
    axes.set_xticks(places, [str(token) for token in tokens], rotation=90, fontsize=7)
    axes.set_yticks(places, [str(token) for token in tokens], fontsize=7)
    axes.set(xlabel="key", ylabel="query")
    axes.grid(visible=False)


@printed
def shift_weights(axes: Axes, metrics: pd.DataFrame, layer: int, kv_head: int) -> None:
    """alpha and beta of one key/value head over training. `metrics` is a run's, with columns alpha1_L.G ..."""
    for name, (color, dashes, label) in SHIFT_LINES.items():
        axes.plot(metrics["step"], metrics[f"{name}_{layer}.{kv_head}"], color=color, ls=dashes, label=label)
    axes.set(xlabel="training step")
    axes.axhline(0, color="#999999", linewidth=0.8)
