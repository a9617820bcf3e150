"""Steps to an accuracy against the width of the embeddings at the start."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.curves import Line
from ihlab.plots.robustness import ABOVE, dots, steps_axis
from ihlab.plots.style import printed

MARKERS = "osD^v"
BESIDE = 1.16
"""Each curve is drawn at this multiple of the standard deviation of the previous one, so that they do not overlap."""


@printed
def steps_by_width(axes: Axes, data: pd.DataFrame, lines: dict[str, Line], horizon: float) -> None:
    """Draw the steps of every seed against the standard deviation, both on log axes, and a line through the medians.

    `data` has columns curve, embed_std, seed and steps_to_90; inf, "never within `horizon`", is drawn on top, for a
    median too.
    """
    steps_axis(axes, data["steps_to_90"], horizon)
    for number, (curve, style) in enumerate(lines.items()):
        mine = data[data["curve"] == curve].sort_values(["embed_std", "seed"])
        beside = BESIDE ** (number - (len(lines) - 1) / 2)
        for width in mine["embed_std"].unique():
            steps = mine.loc[mine["embed_std"] == width, "steps_to_90"]
            spread = BESIDE ** np.linspace(-0.35, 0.35, len(steps))
            dots(axes, width * beside * spread, steps, horizon, style, MARKERS[number], filled=False)
        middle = mine.groupby("embed_std")["steps_to_90"].median()
        at = middle.where(np.isfinite(middle), ABOVE * horizon)
        axes.plot(middle.index * beside, at, style.dashes, color=style.color, lw=1.6, zorder=2)
        axes.plot([], [], style.dashes, color=style.color, lw=1.6, marker=MARKERS[number], mfc="white", label=curve)
    widths = sorted(data["embed_std"].unique())
    axes.set_xscale("log")
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.minorticks_off()
    axes.set_xlabel("standard deviation of the embeddings at the start")
