"""Draw a matrix of ratios: a row for each attention variant, a column for each setting."""

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from ihlab.plots.style import PAGE, new_figure, scaled

LARGEST_RATIO = 8
"""The colour scale ends at this ratio and at its reciprocal."""


def matrix(cells: Mapping[tuple[str, str], tuple[float, str]], bar_label: str) -> Figure:
    """Draw the ratio and the text of each cell (row, column): the colour is the ratio's log, cut at
    `LARGEST_RATIO`.

    A ratio is inf if a variant never reaches the accuracy. A cell is white if its ratio is NaN or
    if it is missing.
    """
    rows, columns = (list(dict.fromkeys(each)) for each in zip(*cells, strict=True))
    figure = new_figure(PAGE, 0.3 * len(rows) + 2.2)
    axes, bound = figure.subplots(), np.log2(LARGEST_RATIO)
    shown = np.full((len(rows), len(columns)), np.nan)
    for (row, column), (ratio, text) in cells.items():
        i, j = rows.index(row), columns.index(column)
        shown[i, j] = np.clip(np.log2(ratio), -bound, bound)
        ink = "white" if abs(shown[i, j]) > 0.7 * bound else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=scaled(9), color=ink)
    image = axes.imshow(shown, cmap="PuOr_r", norm=TwoSlopeNorm(0.0, -bound, bound), aspect="auto")
    axes.set_xticks(range(len(columns)), [label.replace(", ", ",\n") for label in columns])
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.01, aspect=30)
    bar.set_ticks(range(-3, 4), labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label(bar_label)
    return figure
