"""Heads by the larger of alpha1 and alpha2 and of beta1 and beta2: counts as in the paper's Table 5, and positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Shaped
from matplotlib.axes import Axes

from ihlab.plots.curves import Mark
from ihlab.plots.style import printed, scaled


@printed
def quadrants(
    axes: Axes, counts: Shaped[np.ndarray, "row column"], columns: Sequence[str], rows: Sequence[str], title: str
) -> None:
    """Draw a small table of counts; darker cells have more heads."""
    total = int(counts.sum())
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=max(total, 1), interpolation="nearest")
    for (row, column), count in np.ndenumerate(counts):
        ink = "white" if count > total / 2 else "black"
        axes.text(column, row, str(int(count)), ha="center", va="center", color=ink, fontsize=scaled(15))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.set_title(title, fontsize="medium")


@printed
def corners(axes: Axes, heads: pd.DataFrame, styles: dict[str, Mark]) -> None:
    """Draw each head at its (key, value), in [0, 1] x [0, 1], and write the number of heads into each quarter.

    `heads` has columns curve, key and value; `styles` has the style of each curve that is drawn. A head on the middle
    line counts as left of it or below it.
    """
    for curve, style in styles.items():
        drawn = heads[heads["curve"] == curve]
        axes.scatter(
            drawn["key"],
            drawn["value"],
            s=32,
            marker=style.marker,
            facecolors="none",
            edgecolors=style.color,
            linewidths=1.2,
            label=curve,
            zorder=3,
        )
    right, upper = heads["key"] > 0.5, heads["value"] > 0.5
    for x, column in ((0.25, ~right), (0.75, right)):
        for y, row in ((0.25, ~upper), (0.75, upper)):
            number = str(int((column & row).sum()))
            large: dict[str, Any] = {"fontsize": scaled(20), "weight": "bold", "color": "0.6", "zorder": 1}
            axes.text(x, y, number, ha="center", va="center", **large)
    axes.axhline(0.5, color="#999999", linewidth=0.8)
    axes.axvline(0.5, color="#999999", linewidth=0.8)
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.grid(visible=False)
