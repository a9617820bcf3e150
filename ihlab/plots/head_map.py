"""A map of a model's heads: layers as rows, heads as columns, a score as colour."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ihlab.plots.grids import grid
from ihlab.plots.style import ORANGE, new_figure, printed
from tasks.config import choose, require

DRAWN = ("prefix_matching", "previous_token", "loss_rise")
"""The scores that are drawn by default."""


@printed
def head_map(scores: pd.DataFrame, title: str, columns: tuple[str, ...] = DRAWN) -> Figure:
    """Draw scores of every head, one map of layers and heads per column. Heads with verdict
    "induction" are framed.

    `scores` is a table of `ihlab.interp.head_scores` or of `locate_induction_heads`, which has
    verdicts. If there are two kinds of pattern, the effective one is drawn. Columns that the table
    lacks are left out, and missing scores are grey. Raises `ConfigError` if the table has none of
    the columns.
    """
    scores, shown = shown_scores(scores, columns)
    n_layers, n_heads = grid_of(scores, shown[0]).shape
    cell = 0.22 if max(n_layers, n_heads) > 12 else 0.34
    width, height = max(2.2, cell * n_heads) + 1.1, max(1.8, cell * n_layers) + 1.2
    figure = new_figure(min(24.0, width * len(shown)), min(24.0, height))
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _map(axes, scores, name)
        axes.label_outer()
    figure.suptitle(title, fontsize="medium")
    return figure


def shown_scores(scores: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of the drawn pattern and the columns that the table has. Raises `ConfigError`
    if it has none.
    """
    if "pattern" in scores:
        scores = scores[scores["pattern"] == scores["pattern"].min()]  # "effective" before "raw"
    again = scores[scores.duplicated(["layer", "head"])]
    require(
        again.empty,
        lambda: (
            f"The table has several rows of head {again['layer'].iloc[0]}.{again['head'].iloc[0]}, but must have "
            "one for each head, such as those of one training step."
        ),
    )
    present = [name for name in columns if name in scores]
    return scores, present or [choose("score", columns[0], scores.columns)]


def grid_of(scores: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a score by layer and head. Layers and heads start at 0; those that the table lacks are
    NaN.
    """
    heads = range(int(scores["head"].max()) + 1)
    layers = range(int(scores["layer"].max()) + 1)
    return grid(scores, "layer", "head", name, layers, heads)


def framed(scores: pd.DataFrame) -> list[list[int]]:
    """Return the pairs [layer, head] with the verdict "induction"."""
    if "induction" not in scores:
        return []
    found = scores.loc[scores["induction"].eq(True), ["layer", "head"]]
    return found.to_numpy(dtype=int).tolist()


def colours_of(name: str, scores: pd.DataFrame) -> tuple[str, float, float]:
    """Return the colour scale of a score's grid and the values at its ends: red to blue for a score
    of both signs.
    """
    values = scores.to_numpy(dtype=float)
    least_range = 1e-9 if name == "loss_rise" else 1.0
    most = max(least_range, float(np.nanmax(np.abs(values), initial=0.0)))
    return ("RdBu", -most, most) if (values < 0).any() else ("Blues", 0.0, most)


def _map(axes: Axes, scores: pd.DataFrame, name: str) -> None:
    of_heads = grid_of(scores, name)
    scale, least, most = colours_of(name, of_heads)
    axes.set_facecolor("#DDDDDD")
    image = axes.imshow(
        of_heads.to_numpy(dtype=float), cmap=scale, vmin=least, vmax=most, interpolation="nearest"
    )
    for layer, head in framed(scores):
        axes.add_patch(
            Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.5)
        )
    axes.set(title=name, xlabel="head", ylabel="layer")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
