"""The picture of the cost curves: time in the upper row, memory in the lower, one column per size."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ihlab.plots.style import BLACK, BLUE, new_figure, printed, write_picture

COSTS = {"time": ("ms", "counted_gflop", "ms a step"), "memory": ("mib", "counted_mib", "peak MiB")}


@printed
def draw_costs(
    points: pd.DataFrame, slopes: pd.DataFrame, names: dict[str, str], path: Path
) -> None:
    """Draw measured costs, and counted costs scaled to the largest measured one. `names`: titles of
    the axes.
    """
    picture = new_figure(2.6 * len(names), 5.6)
    grid = picture.subplots(2, len(names), squeeze=False, sharex="col", sharey="row")
    for column, (axis, name) in enumerate(names.items()):
        for row, cost in enumerate(COSTS):
            chosen = (slopes["axis"] == axis) & (slopes["cost"] == cost)
            _panel(grid[row, column], points[points["axis"] == axis], slopes[chosen].iloc[0], cost)
        grid[1, column].set_xlabel(name)
    for row, (_, _, label) in enumerate(COSTS.values()):
        grid[row, 0].set_ylabel(label)
    grid[0, 0].legend(loc="lower right", fontsize=8)
    write_picture(picture, path)


def _panel(axes: Axes, points: pd.DataFrame, slope: pd.Series, cost: str) -> None:
    """Draw one cost along one axis, both logarithmic, with the exponents in the title."""
    measured, counted, _ = COSTS[cost]
    sizes = points["value"]
    axes.plot(sizes, points[measured], color=BLUE, marker="o", ms=4, label="measured")
    if cost == "time":
        axes.fill_between(
            sizes, points["ms_min"], points["ms_max"], color=BLUE, alpha=0.18, linewidth=0
        )
    scale = points[measured].iloc[-1] / points[counted].iloc[-1]
    axes.plot(
        sizes, scale * points[counted], color=BLACK, linestyle=":", lw=1.2, label="as counted"
    )
    axes.set_title(
        f"exponent {slope['measured']:.2f},\ncounted {slope['counted']:.2f}", fontsize=8, loc="left"
    )
    axes.tick_params(labelsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
