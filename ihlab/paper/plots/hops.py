"""Errors by number of hops."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, printed

DEPTHS = {2: (BLUE, "o"), 3: (ORANGE, "s"), 4: (GREEN, "^"), 5: (PINK, "D"), 6: (RED, "v")}
"""Colour and marker of each number of layers; the paper's pink line is five."""


@printed
def hop_errors(axes: Axes, data: pd.DataFrame, published: pd.DataFrame | None = None) -> None:
    """Draw a curve for each depth over a log2 axis: the median over seeds, with a band that holds all seeds.

    `data` has n_layers, seed, hops (from 1) and error. `published` has n_layers, hops and error, and is drawn dotted.
    """
    for depth, curve in data.groupby("n_layers"):
        color, marker = DEPTHS.get(int(str(depth)), (BLACK, "x"))
        by_hops = curve.groupby("hops")["error"]
        middle = by_hops.median()
        axes.plot(middle.index, middle, color=color, marker=marker, markersize=6, label=f"{depth} layers")
        axes.fill_between(middle.index, by_hops.min(), by_hops.max(), color=color, alpha=0.18, linewidth=0)
        if published is not None:
            there = published[(published["n_layers"] == depth) & published["hops"].between(1, data["hops"].max())]
            there = there.sort_values("hops")
            style: dict[str, Any] = {"color": color, "ls": ":", "marker": marker, "mfc": "white", "ms": 5}
            axes.plot(there["hops"], there["error"], **style, label=f"{depth} layers, published")
    axes.set(ylim=(-0.02, 0.8))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_axisbelow(True)


@printed
def hop_ticks(axes: Axes, hops: dict[int, int], error: float) -> None:
    """Draw a line at `error`, and mark on it the hops that each depth follows with hand-set weights (0: none)."""
    axes.axhline(error, color="0.8", lw=0.8, zorder=0)
    axes.plot([], [], "|", color="0.4", ms=10, mew=2.5, label="reached by hand")
    for depth, most in hops.items():
        if most:
            color, _ = DEPTHS.get(depth, (BLACK, "x"))
            axes.plot([most, most], [error - 0.03, error + 0.03], color=color, lw=2.5, solid_capstyle="butt", zorder=1)
