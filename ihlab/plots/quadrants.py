"""Heads by the larger of alpha1, alpha2 and of beta1, beta2: counts as in the paper's Table 5, and their paths."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Shaped
from matplotlib.axes import Axes

from ihlab.plots.curves import Line
from ihlab.plots.style import printed

MARKERS = "osD^vP"


@printed
def quadrants(
    axes: Axes, counts: Shaped[np.ndarray, "row column"], columns: Sequence[str], rows: Sequence[str], title: str
) -> None:
    """Draw a small table of counts, darker where more heads are."""
    total = int(counts.sum())
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=max(total, 1), interpolation="nearest")
    for (row, column), count in np.ndenumerate(counts):
        ink = "white" if count > total / 2 else "black"
        axes.text(column, row, str(int(count)), ha="center", va="center", color=ink, fontsize=15)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.set_title(title, fontsize=10)


@printed
def trajectories(axes: Axes, start: pd.DataFrame, end: pd.DataFrame, styles: dict[str, Line]) -> None:
    """Draw each head as an arrow from a small hollow marker to a filled one, over (key, value) in [0, 1] x [0, 1].

    `start` and `end` have columns curve, key and value and the same heads in the same order; `styles` has the style of
    each curve that is drawn.
    """
    for (curve, style), marker in zip(styles.items(), MARKERS, strict=False):
        drawn = (start["curve"] == curve).to_numpy()
        tails, tips = start[drawn], end[drawn]
        for x, y, to_x, to_y in zip(tails["key"], tails["value"], tips["key"], tips["value"], strict=True):
            axes.annotate(
                "", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "->", "color": style.color, "alpha": 0.3, "lw": 0.8}
            )
        axes.scatter(tails["key"], tails["value"], s=16, marker=marker, facecolors="none", edgecolors=style.color)
        axes.scatter(
            tips["key"], tips["value"], s=42, marker=marker, color=style.color, edgecolors="white", lw=0.5, label=curve,
            zorder=3,
        )  # fmt: skip
    axes.axhline(0.5, color="#999999", linewidth=0.8)
    axes.axvline(0.5, color="#999999", linewidth=0.8)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_axisbelow(True)
