"""Attention pattern of a head and its shift weights over training."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

from ihlab.plots.style import BLUE, LINES, ORANGE, printed, scaled
from tasks.config import require

SHIFT_COLORS = {"alpha": (BLUE, "key"), "beta": (ORANGE, "value")}


def shifted_token(column: int) -> str:
    """Return which token a column of alpha or beta, counted from 1, weighs."""
    return {1: "this token", 2: "token before"}.get(column, f"{column - 1} tokens before")


@printed
def attention_pattern(
    axes: Axes, pattern: Float[np.ndarray, "query key"], tokens: Sequence[int | str]
) -> None:
    """Draw one head's pattern on one sequence: darker is more attention, tokens on both axes."""
    axes.imshow(pattern, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    places = range(len(tokens))
    names = list(map(str, tokens))
    axes.set_xticks(places, names, rotation=90, fontsize=scaled(7))
    axes.set_yticks(places, names, fontsize=scaled(7))
    axes.set(xlabel="key", ylabel="query")
    axes.grid(visible=False)


@printed
def shift_weights(axes: Axes, metrics: pd.DataFrame, layer: int, kv_head: int) -> None:
    """Draw alpha and beta of one key/value head over training. `metrics` of a run has columns
    alpha1_L.G ...

    Raises `ConfigError` if these are missing: the model has no alpha and beta, or fewer layers or
    heads.
    """
    require_shift(metrics, rf"_{layer}\.{kv_head}$", f" at layer {layer}, key/value head {kv_head}")
    for name, (
        color,
        shifted,
    ) in SHIFT_COLORS.items():  # alpha needs shifted keys, beta shifted values
        window = metrics.filter(regex=rf"^{name}\d+_{layer}\.{kv_head}$").shape[1]
        for back in range(window):
            axes.plot(
                metrics["step"],
                metrics[f"{name}{back + 1}_{layer}.{kv_head}"],
                color=color,
                ls=LINES[back % len(LINES)],
                label=rf"$\{name}_{{{back + 1}}}$ {shifted}, {shifted_token(back + 1)}",
            )
    axes.set(xlabel="training step")
    axes.axhline(0, color="#999999", linewidth=0.8)


def require_shift(metrics: pd.DataFrame, head: str = "_", where: str = "") -> None:
    """Raise `ConfigError` if no alpha or beta column of the metrics matches `head`."""
    known = metrics.filter(regex=rf"^(alpha|beta)1{head}").shape[1]
    require(
        known > 0,
        f"The metrics have no alpha and beta{where}: they are those of a run whose attention has a shift.",
    )
