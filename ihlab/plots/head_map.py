"""A map of a model's heads: layers as rows, heads as columns, a score as colour."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ihlab.plots.style import ORANGE, new_figure, printed
from tasks.config import choose

DRAWN = ("prefix_matching", "previous_token", "loss_rise")
"""The scores that are drawn by default."""


@printed
def head_map(scores: pd.DataFrame, title: str, columns: tuple[str, ...] = DRAWN) -> Figure:
    """Draw scores of every head, one map of layers and heads per column. Heads with verdict "induction" are framed.

    `scores` is a table of `ihlab.interp.head_scores` or of `locate_induction_heads`, which has verdicts. If there are
    two kinds of pattern, the effective one is drawn. Columns that the table lacks are left out, and missing scores are
    grey. Raises `ConfigError` if the table has none of the columns.
    """
    scores, shown = shown_scores(scores, columns)
    n_layers, n_heads = int(scores["layer"].max()) + 1, int(scores["head"].max()) + 1
    cell = 0.22 if max(n_layers, n_heads) > 12 else 0.34
    width, height = max(2.2, cell * n_heads) + 1.1, max(1.8, cell * n_layers) + 1.2
    figure = new_figure(min(24.0, width * len(shown)), min(24.0, height))
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _map(axes, scores, name, (n_layers, n_heads))
        axes.label_outer()
    figure.suptitle(title, fontsize="medium")
    return figure


def shown_scores(scores: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of the drawn pattern and the columns that the table has. Raises `ConfigError` if it has none."""
    if "pattern" in scores:
        scores = scores[scores["pattern"] == scores["pattern"].iloc[-1]]
    return scores, [name for name in columns if name in scores] or [choose("score", columns[0], scores.columns)]


def _map(axes: Axes, scores: pd.DataFrame, name: str, shape: tuple[int, int]) -> None:
    values = np.full(shape, np.nan)
    values[scores["layer"], scores["head"]] = scores[name]
    signed = bool((values < 0).any())
    most = max(1.0 if name != "loss_rise" else 1e-9, float(np.nanmax(np.abs(values), initial=0.0)))
    axes.set_facecolor("#DDDDDD")
    colours, least = ("RdBu_r", -most) if signed else ("Blues", 0.0)
    image = axes.imshow(values, cmap=colours, vmin=least, vmax=most, interpolation="nearest")
    framed = scores[scores["induction"]] if "induction" in scores else scores[:0]
    for layer, head in framed[["layer", "head"]].to_numpy().tolist():
        corner = (head - 0.5, layer - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.5))
    axes.set(title=name, xlabel="head", ylabel="layer")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
