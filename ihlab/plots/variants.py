"""Attention variants: steps to an accuracy for each seed, and a matrix of variants by settings."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from ihlab.plots.style import BLUE, ORANGE, PAGE, STEPS, new_figure, printed

NEVER = 1.6
"""Position of "never", as a multiple of the last step."""

SPREAD = 0.22
"""Half the height of a variant's seeds; variants are 1 apart."""

LARGEST_RATIO = 8
"""The ratio at which the colours of the matrix end."""


@printed
def steps_in_settings(data: pd.DataFrame, variants: Sequence[str], settings: Sequence[str], title: str) -> Figure:
    """Draw the steps of every seed, one panel per setting in `data`.

    `data` has columns variant, setting, seed, lr, steps_to_90 (inf: never) and horizon.
    """
    shown = [setting for setting in settings if setting in set(data["setting"])]
    columns = 2 if len(shown) == 4 else min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = new_figure(PAGE, (0.26 * len(variants) + 0.9) * rows + 1.0)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, setting in zip(panels, shown, strict=False):
        _steps_by_variant(axes, data[data["setting"] == setting], variants)
        axes.set_title(setting.replace(", ", ",\n", 1) if columns > 2 else setting, fontsize=10)
    for axes in panels[len(shown) :]:
        axes.remove()
    figure.supxlabel("training steps to 90% accuracy", fontsize=10)
    figure.suptitle(title, fontsize=11)
    return figure


def _steps_by_variant(axes: Axes, data: pd.DataFrame, variants: Sequence[str]) -> None:
    """Draw the steps of every seed on a log axis, one line per variant, the first on top. A bar is a median."""
    horizon = float(data["horizon"].max())
    for row, variant in enumerate(variants):
        mine = data[data["variant"] == variant].sort_values("seed")
        if mine.empty:
            continue
        taken = mine["steps_to_90"].to_numpy(dtype=float)
        never = np.isinf(taken)
        y = row + (np.linspace(-SPREAD, SPREAD, len(taken)) if len(taken) > 1 else np.zeros(len(taken)))
        axes.scatter(taken[~never], y[~never], s=16, color=BLUE, linewidths=0, zorder=3)
        axes.scatter(np.full(never.sum(), NEVER * horizon), y[never], s=16, color=ORANGE, marker="x", zorder=3)
        middle = float(np.median(taken))
        if np.isfinite(middle):
            axes.vlines(middle, row - 0.36, row + 0.36, color=BLUE, linewidth=1.2, zorder=2)
    axes.axvline(horizon, color="#999999", linewidth=0.8, zorder=1)
    reached = data["steps_to_90"].replace(np.inf, np.nan).min()
    low = max(1.0, min(float(reached) if np.isfinite(reached) else horizon, horizon / 4))
    ticks = [tick for tick in STEPS if low / 1.3 <= tick < horizon]
    axes.set(xscale="log", xlim=(low / 1.3, 1.35 * NEVER * horizon), ylim=(len(variants) - 0.4, -0.6))
    axes.set_xticks([*ticks, NEVER * horizon], [*map(str, ticks), "never"], fontsize=9)
    axes.minorticks_off()
    axes.set_yticks(range(len(variants)), list(variants))
    axes.set_axisbelow(True)


@printed
def matrix(
    ratios: pd.DataFrame,
    labels: pd.DataFrame,
    title: str,
    bar_label: str = "steps to 90% accuracy / KV shifting's (8: or never)",
) -> Figure:
    """Draw variants [row] by settings [column]: the colour is the log of the ratio, cut at `LARGEST_RATIO`.

    `labels` has the text of each cell. A ratio is inf if a variant never reaches the accuracy. It is NaN, and the cell
    white, if it is undefined.
    """
    figure = new_figure(PAGE, 0.3 * len(ratios) + 2.2)
    axes = figure.subplots()
    shown = np.log2(ratios.to_numpy(dtype=float).clip(1 / LARGEST_RATIO, LARGEST_RATIO))
    bound = np.log2(LARGEST_RATIO)
    image = axes.imshow(shown, cmap="PuOr_r", norm=TwoSlopeNorm(0.0, -bound, bound), aspect="auto")
    for i, row in enumerate(labels.to_numpy()):
        for j, text in enumerate(row):
            dark = abs(shown[i, j]) > 0.7 * bound
            axes.text(j, i, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    axes.set_xticks(range(len(ratios.columns)), [label.replace(", ", ",\n") for label in ratios.columns])
    axes.set_yticks(range(len(ratios.index)), list(ratios.index))
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.01, aspect=30)
    ticks = [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8]
    bar.set_ticks(np.log2(ticks).tolist(), labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label(bar_label)
    figure.suptitle(title, fontsize=11)
    return figure
