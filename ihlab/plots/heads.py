"""Attention patterns of heads and their shift weights over training."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ihlab.plots.style import BLUE, LINES, ORANGE, new_figure, printed, scaled
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


@printed
def shift_training(metrics: pd.DataFrame, title: str) -> Figure:
    """Draw alpha and beta of every key/value head of a run over training: one row of axes per
    layer.

    `metrics` comes from a run with a shift and has columns alpha1_L.G ..., beta1_L.G ..., or both.
    Raises `ConfigError` if it has neither.
    """
    require_shift(metrics)
    heads = metrics.columns.str.extract(r"^(?:alpha|beta)1_(\d+)\.(\d+)$").dropna().astype(int)
    places = sorted(set(heads.itertuples(index=False, name=None)))
    n_layers, kv_heads = 1 + np.max(places, axis=0)
    figure = new_figure(max(2.3 * kv_heads, 4.6) + 0.5, 2.1 * n_layers + 1.0)
    grid = figure.subplots(n_layers, kv_heads, sharex=True, sharey=True, squeeze=False)
    for layer, kv_head in places:
        axes = grid[layer, kv_head]
        shift_weights(axes, metrics, layer, kv_head)
        axes.set_title(f"key/value head {layer}.{kv_head}", fontsize="medium")
        axes.set(ylabel="weight")
        axes.label_outer()
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title, fontsize="medium")
    return figure
