"""Errors against the number of hops, and hop horizons against the number of layers."""

from collections.abc import Callable, Mapping

import numpy as np
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
            there = published[(published["n_layers"] == depth) & published["hops"].between(1, data["hops"].max())]
            there = there.sort_values("hops")
            axes.plot(there["hops"], there["error"], color=color, ls=":", label=f"{depth} layers, published")
    axes.set(ylim=(-0.02, 0.8))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_axisbelow(True)


@printed
def hop_ticks(axes: Axes, hops: dict[int, int], error: float) -> None:
    """Mark on the line of an error, which is drawn too, how many hops each depth follows by hand (0: none)."""
    axes.axhline(error, color="0.8", lw=0.8, zorder=0)
    axes.plot([], [], "|", color="0.4", ms=10, mew=2.5, label="reached by hand")
    for depth, most in hops.items():
        if most:
            color, _ = DEPTHS.get(depth, (BLACK, "x"))
            axes.plot([most, most], [error - 0.03, error + 0.03], color=color, lw=2.5, solid_capstyle="butt", zorder=1)


@printed
def horizon_law(
    axes: Axes,
    table: pd.DataFrame,
    kinds: Mapping[str, str],
    published: pd.DataFrame,
    laws: Mapping[str, Callable[[int], int]],
) -> None:
    """Draw k* of every seed over a log2 axis against the number of layers, a column for each kind, with its median.

    `kinds` gives each its colour. `table` and `published` have n_layers, attention, seed, log2_hops and bound ("above",
    "below" or "": the arrow says so). Up to four `laws` are drawn as stairs: hops by the number of layers, 0 for none.
    """
    depths = sorted(table["n_layers"].unique())
    for line, (label, law) in zip(("-", "-.", "--", ":"), laws.items(), strict=False):
        stairs = [(depth + side, law(depth)) for depth in depths if law(depth) for side in (-0.3, 0.3)]
        axes.plot(*zip(*stairs, strict=True), color="0.6", lw=1.2, ls=line, zorder=1, label=label)
    for number, (kind, color) in enumerate(kinds.items()):
        mine = table[table["attention"] == kind]
        for depth, seeds in mine.groupby("n_layers"):
            x = float(str(depth)) + 0.16 * (number - (len(kinds) - 1) / 2)
            spread = x + np.linspace(-0.05, 0.05, len(seeds))
            y = 2 ** seeds["log2_hops"].to_numpy()
            for bound, marker in {"": "o", "above": "^", "below": "v"}.items():
                is_it = (seeds["bound"] == bound).to_numpy()
                axes.scatter(spread[is_it], y[is_it], s=18, marker=marker, color=color, linewidths=0, zorder=3)
            axes.hlines(np.median(y), x - 0.07, x + 0.07, color=color, lw=2, zorder=2)
        axes.plot([], [], "o", ms=4.5, color=color, label=kind)
    for bound, marker in {"": "D", "above": "^"}.items():
        shown = published[published["bound"] == bound]
        axes.scatter(
            shown["n_layers"], 2 ** shown["log2_hops"], s=30, marker=marker, facecolors="none", edgecolors=BLACK,
            zorder=4, label="vanilla, published" if not bound and len(shown) else None,
        )  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.set(xlabel="layers $L$", ylabel="hops $k^*$ at which the error exceeds 0.1")
    axes.set_axisbelow(True)
