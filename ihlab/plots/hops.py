"""Errors against the number of hops, and hop horizons against the number of layers."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, new_figure, printed
from ihlab.theory.depth import by_doubling, horizon

KNOWN: dict[str, tuple[str, Callable[[int], int]]] = {
    "-": ("$2^L-1$, by hand, with the key shift", partial(horizon, attention="k_shift")),
    "-.": ("$2^{L-1}$, pointers alone, with the key shift", partial(by_doubling, attention="k_shift")),
    "--": ("$2^{L-1}-1$, by hand, without", partial(horizon, attention="vanilla")),
    ":": ("$2^{L-2}$, pointers alone, without", partial(by_doubling, attention="vanilla")),
}
"""Hops that L layers follow in constructions: the style of each line, its label, and a function of L (0: none)."""

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
    table: pd.DataFrame, colors: Mapping[str, str], title: str, scale: str, published: pd.DataFrame | None = None
) -> Figure:
    """Draw k* of every seed over a log2 axis against layers, a column for each attention variant, with its median.

    `colors` has a colour for each label of a variant. `table` and `published`, drawn as diamonds, have n_layers,
    attention, seed, log2_hops and bound ("above", "below" or "": the arrow says so). Constructions are drawn as stairs.
    """
    figure = new_figure(6.4, 5.0)
    axes, others = figure.subplots(), table[:0] if published is None else published
    colors = {label: color for label, color in colors.items() if label in set(table["attention"])}
    depths = sorted(table["n_layers"].unique())
    for style, (label, hops) in KNOWN.items():
        stairs = [(depth + side, hops(depth)) for depth in depths if hops(depth) for side in (-0.3, 0.3)]
        axes.plot(*zip(*stairs, strict=True), color="0.6", lw=1.2, ls=style, zorder=1, label=label)
    for number, (variant, color) in enumerate(colors.items()):
        mine = table[table["attention"] == variant]
        for depth, seeds in mine.groupby("n_layers"):
            x = float(str(depth)) + 0.16 * (number - (len(colors) - 1) / 2)
            spread = x + np.linspace(-0.05, 0.05, len(seeds))
            y = 2 ** seeds["log2_hops"].to_numpy()
            for bound, marker in {"": "o", "above": "^", "below": "v"}.items():
                is_it = (seeds["bound"] == bound).to_numpy()
                axes.scatter(spread[is_it], y[is_it], s=18, marker=marker, color=color, linewidths=0, zorder=3)
            axes.hlines(np.median(y), x - 0.07, x + 0.07, color=color, lw=2, zorder=2)
        axes.plot([], [], "o", ms=4.5, color=color, label=variant)
    for bound, marker in {"": "D", "above": "^"}.items():
        shown = others[others["bound"] == bound]
        axes.scatter(
            shown["n_layers"], 2 ** shown["log2_hops"], s=30, marker=marker, facecolors="none", edgecolors=BLACK,
            zorder=4, label="vanilla, published" if not bound and len(shown) else None,
        )  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.set(xlabel="layers $L$", ylabel="hops $k^*$ at which the error exceeds 0.1")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    sizes = sorted(set(table.groupby(["attention", "n_layers"]).size()))
    axes.set_title(f"{title} ({scale} scale; {' or '.join(map(str, sizes))} seeds, bar: median)")
    return figure
