"""Errors against the number of hops."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, printed

DEPTHS = {2: (BLUE, "o"), 3: (ORANGE, "s"), 4: (GREEN, "^"), 5: (PINK, "D"), 6: (RED, "v")}
"""Colour and marker of each number of layers; the paper's pink line is five."""


@printed
def hop_errors(axes: Axes, data: pd.DataFrame, published: pd.DataFrame | None = None) -> None:
    """Draw a curve for each depth over a log2 axis: the median over seeds, with the band that holds all of them.

    `data` has n_layers, seed, hops (from 1) and error; `published`, drawn dotted, n_layers, hops and error.
    """
    for depth, curve in data.groupby("n_layers"):
        color, marker = DEPTHS.get(int(str(depth)), (BLACK, "x"))
        by_hops = curve.groupby("hops")["error"]
        middle = by_hops.median()
        axes.plot(middle.index, middle, color=color, marker=marker, markersize=4, label=f"{depth} layers")
        axes.fill_between(middle.index, by_hops.min(), by_hops.max(), color=color, alpha=0.18, linewidth=0)
        if published is not None:
            there = published[(published["n_layers"] == depth) & (published["hops"] > 0)].sort_values("hops")
            axes.plot(there["hops"], there["error"], color=color, ls=":", label=f"{depth} layers, published")
    axes.set(ylim=(-0.02, 0.8))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_axisbelow(True)
