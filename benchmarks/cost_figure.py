"""The picture of the cost curves: time in the upper row, memory in the lower, one column per size."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ihlab.plots.style import BLACK, BLUE, ORANGE, new_figure, printed, save

STYLES = {"vanilla": (BLUE, "-", "o"), "kv_shift": (ORANGE, "--", "s")}
NAMES = {
    "length": "length",
    "d_model": "width (d_model)",
    "n_layers": "depth (layers)",
    "vocab_size": "vocabulary",
    "members": "members (stacked)",
}
COSTS = {"time": ("ms", "counted_gflop", "ms a step"), "memory": ("mib", "counted_mib", "peak MiB")}


@printed
def draw_costs(points: pd.DataFrame, slopes: pd.DataFrame, stem: Path) -> list[Path]:
    """Draw measured costs, and counted costs scaled to vanilla's largest, to `<stem>.svg` and `<stem>.png`."""
    axes_names = list(points["axis"].unique())
    picture = new_figure(3.2 * len(axes_names), 6.4)
    grid = picture.subplots(2, len(axes_names), squeeze=False, sharex="col", sharey="row")
    for column, axis in enumerate(axes_names):
        for row, cost in enumerate(COSTS):
            chosen = (slopes["axis"] == axis) & (slopes["cost"] == cost)
            _panel(grid[row, column], points[points["axis"] == axis], slopes[chosen], cost)
        grid[1, column].set_xlabel(NAMES[axis])
    for row, (_, _, label) in enumerate(COSTS.values()):
        grid[row, 0].set_ylabel(label)
    grid[0, 0].legend(loc="lower right", fontsize=8)
    return save(picture, stem)


def _panel(axes: Axes, points: pd.DataFrame, slopes: pd.DataFrame, cost: str) -> None:
    """Draw one cost along one axis, both logarithmic, with the exponents in words."""
    measured, counted, _ = COSTS[cost]
    lines = ["exponents"]
    for attention, (color, dashes, marker) in STYLES.items():
        part = points[points["attention"] == attention]
        axes.plot(part["value"], part[measured], color=color, linestyle=dashes, marker=marker, ms=4, label=attention)
        if cost == "time":
            axes.fill_between(part["value"], part["ms_min"], part["ms_max"], color=color, alpha=0.18, linewidth=0)
        found = slopes[slopes["attention"] == attention].iloc[0]
        lines.append(f"{attention} {found['measured']:.2f}, counted {found['counted']:.2f}")
    vanilla = points[points["attention"] == "vanilla"]
    scale = vanilla[measured].iloc[-1] / vanilla[counted].iloc[-1]
    axes.plot(vanilla["value"], scale * vanilla[counted], color=BLACK, linestyle=":", lw=1.2, label="as counted")
    axes.set_title("\n".join(lines), fontsize=8, loc="left")
    axes.tick_params(labelsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(vanilla["value"])))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
