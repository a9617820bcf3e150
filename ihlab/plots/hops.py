"""Errors by number of hops, and hop horizons by number of layers."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter

from ihlab.plots.curves import Mark
from ihlab.plots.style import BLACK, BLUE, GREEN, LINES, ORANGE, PAGE, PINK, RED, new_figure, printed

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
            axes.plot(
                there["hops"], there["error"], color=color, ls=":", marker=marker, mfc="white", ms=5,
                label=f"{depth} layers, published",
            )  # fmt: skip
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


WHOLE = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64)
"""Ticks of the log axis of hops."""

BOUNDS = {
    "above": (r"$\uparrow$", 9, "hollow: at least as many (no more are tested)"),
    "below": (r"$\downarrow$", -9, "hollow: fewer than one"),
}
"""Arrow beside a hollow marker, its distance in points, and its meaning."""


@printed
def horizon_law(
    table: pd.DataFrame,
    marks: Mapping[str, Mark],
    known: Callable[[str, int], Mapping[str, int]],
    published: pd.DataFrame | None = None,
) -> Figure:
    """Draw k* of every seed over a log2 axis, one column per number of layers and attention variant.

    `marks` has the style of each variant. `table` and `published` (diamonds) have n_layers, attention, seed,
    log2_hops and bound: "above" if the error stays below the threshold at all tested hops, "below" if it exceeds it at
    the first, else "". Points with a bound are hollow, with an arrow. A bar is a median. `known` returns, by name, the
    hops of known constructions for a variant and number of layers (0: none). These are drawn in grey.
    """
    figure = new_figure(PAGE, 4.8)
    axes, others = figure.subplots(), table[:0] if published is None else published
    marks = {variant: mark for variant, mark in marks.items() if variant in set(table["attention"])}
    depths = [int(depth) for depth in sorted(table["n_layers"].unique())]
    greys: dict[str, str] = {}
    for depth in depths:
        here = table[table["n_layers"] == depth]
        variants = [variant for variant in marks if variant in set(here["attention"])]
        for number, variant in enumerate(variants):
            x = depth + 0.2 * (number - (len(variants) - 1) / 2)
            for style, (name, hops) in zip(LINES, known(variant, depth).items(), strict=False):
                greys[name] = style
                if hops:
                    axes.hlines(hops, x - 0.095, x + 0.095, color="0.55", lw=1.6, ls=style, zorder=1)
            seeds = here[here["attention"] == variant].sort_values("seed")
            _seeds(axes, x + np.linspace(-0.06, 0.06, len(seeds)), seeds, marks[variant])
            middle = float(np.median(2 ** seeds["log2_hops"]))
            axes.hlines(middle, x - 0.08, x + 0.08, color=marks[variant].color, lw=2.5, zorder=2)
            there = others[(others["n_layers"] == depth) & (others["attention"] == variant)]
            _seeds(axes, np.full(len(there), x), there, Mark(BLACK, "D"), solid=False)
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    axes.set_yticks(ticks := [hops for hops in WHOLE if low <= hops <= high], list(map(str, ticks)))
    axes.minorticks_off()
    axes.set_xticks(depths, [f"{depth} layer{'s' * (depth > 1)}" for depth in depths])
    axes.set_xlim(depths[0] - 0.5, depths[-1] + 0.5)
    for edge in depths[1:]:
        axes.axvline(edge - 0.5, color="#E6E6E6", lw=0.7, zorder=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("hops $k^*$ at which the error exceeds 0.1")
    axes.set_axisbelow(True)
    keys = [Line2D([], [], ls="", marker=mark.marker, color=mark.color, label=name) for name, mark in marks.items()]
    if len(others):
        keys.append(Line2D([], [], ls="", marker="D", mfc="none", color=BLACK, label="vanilla, published"))
    keys += [Line2D([], [], ls=style, lw=1.6, color="0.55", label=name) for name, style in greys.items()]
    found = set(table["bound"]) | set(others["bound"])
    keys += [
        Line2D([], [], ls="", marker=arrow, color="0.3", ms=9, label=meaning)
        for bound, (arrow, _, meaning) in BOUNDS.items()
        if bound in found
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def _seeds(axes: Axes, x: np.ndarray, seeds: pd.DataFrame, mark: Mark, solid: bool = True) -> None:
    """Draw k* of each seed, with an arrow if only a bound is known."""
    for at, hops, bound in zip(x, 2 ** seeds["log2_hops"], seeds["bound"], strict=True):
        fill = mark.color if solid and not bound else "white"
        axes.plot(at, hops, mark.marker, color=mark.color, mfc=fill, ms=7, zorder=3)
        if bound:
            arrow, distance, _ = BOUNDS[bound]
            axes.annotate(
                arrow, (at, hops), (0, distance), textcoords="offset points", ha="center", va="center",
                color=mark.color, fontsize=11,
            )  # fmt: skip
