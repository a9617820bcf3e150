"""The pictures of costs: a training step's time and memory, one column per size; the tools' time."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ihlab.plots.style import BLACK, BLUE, PAGE, new_figure, printed, write_picture

ACROSS = 4
"""Number of panels of costs beside one another."""
COSTS = {"time": ("ms", "counted_gflop", "ms a step"), "memory": ("mib", "counted_mib", "peak MiB")}


@printed
def draw_costs(
    points: pd.DataFrame, slopes: pd.DataFrame, names: dict[str, str], path: Path
) -> None:
    """Draw measured costs, and counted costs scaled to the largest measured one. `names`: titles of
    the axes.
    """
    bands = -(-len(names) // ACROSS)
    picture = new_figure(PAGE, 4.4 * bands)
    grid = picture.subplots(len(COSTS) * bands, ACROSS, squeeze=False)
    for axes in grid[-len(COSTS) :, len(names) - ACROSS * (bands - 1) :].flat:
        axes.set_axis_off()
    for number, (axis, name) in enumerate(names.items()):
        band, column = divmod(number, ACROSS)
        for row, (cost, (_, _, label)) in enumerate(COSTS.items()):
            axes = grid[len(COSTS) * band + row, column]
            axes.sharey(grid[row, 0])
            chosen = (slopes["axis"] == axis) & (slopes["cost"] == cost)
            _panel(axes, points[points["axis"] == axis], slopes[chosen].iloc[0], cost)
            axes.set_xlabel(name)
            if column == 0:
                axes.set_ylabel(label)
    picture.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    write_picture(picture, path)


@printed
def draw_growth(points: pd.DataFrame, exponents: dict[str, float], path: Path) -> None:
    """Draw the seconds of each tool (`name`) over the size that grows, both logarithmic."""
    rows = -(-len(exponents) // 3)
    picture = new_figure(PAGE, 2.7 * rows)
    grid = picture.subplots(rows, 3, squeeze=False, sharey=True)
    for axes in grid.flat[len(exponents) :]:
        axes.set_axis_off()
    for axes, (name, exponent) in zip(grid.flat, exponents.items(), strict=False):
        part = points[points["name"] == name]
        low, high = zip(*((min(turns), max(turns)) for turns in part["seconds"]), strict=True)
        axes.plot(part["value"], part["median"], color=BLUE, marker="o", ms=4)
        axes.fill_between(part["value"], low, high, color=BLUE, alpha=0.18, linewidth=0)
        tool, size = name.rsplit(", ", 1)
        axes.set_title(f"{tool.replace('`', '')}\nexponent {exponent:.2f}", fontsize=8, loc="left")
        axes.set_xlabel(size)
        _logarithmic(axes, list(part["value"]))
    for axes in grid[:, 0]:
        axes.set_ylabel("seconds")
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
        f"exponent {slope['measured']:z.2f},\ncounted {slope['counted']:z.2f}",
        fontsize=8,
        loc="left",
    )
    _logarithmic(axes, list(sizes))


def _logarithmic(axes: Axes, sizes: list[int]) -> None:
    axes.tick_params(labelsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
