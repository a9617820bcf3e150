"""Formation over training: the curve of each series, the start and middle of its rise, and the gap between series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ihlab.plots.curves import Mark
from ihlab.plots.style import BLACK, printed


@dataclass(frozen=True)
class Gap:
    """One row of `gaps`: the median difference of two times, and its interval (infinite if unknown)."""

    label: str
    value: float
    low: float
    high: float
    hollow: bool = False


def legend_keys(styles: dict[str, Mark], names: dict[str, str]) -> list[Line2D]:
    """Return a legend entry for each series: its symbol on a line, and its name."""
    return [
        Line2D([], [], color=style.color, linestyle=style.dashes, marker=style.marker, label=names[series])
        for series, style in styles.items()
    ]


@printed
def medians(axes: Axes, curves: pd.DataFrame, styles: dict[str, Mark]) -> None:
    """Draw the median over seeds of each series, with a band that holds half of the seeds.

    `curves` has the columns series, seed, step and value.
    """
    for series, style in styles.items():
        wide = curves[curves["series"] == series].pivot_table(index="step", columns="seed", values="value")
        if wide.empty:
            continue
        low, middle, high = (wide.quantile(share, axis=1) for share in (0.25, 0.5, 0.75))
        axes.plot(wide.index, middle, color=style.color, linestyle=style.dashes, label=series)
        axes.fill_between(wide.index, low, high, color=style.color, alpha=0.15, linewidth=0)


@printed
def timeline(
    axes: Axes, starts: pd.DataFrame, middles: pd.DataFrame, styles: dict[str, Mark], names: dict[str, str]
) -> None:
    """Draw a row for each column of `starts` and `middles`, which hold the steps at which a series rises in each seed.

    A thick bar goes from the median start (hollow) to the median middle (filled); small symbols are seeds. The number
    of seeds in which a series does not rise is at the right.
    """
    for row, series in enumerate(starts.columns):
        style = styles[series]
        ends = [float(times[series].median()) for times in (starts, middles)]
        axes.plot(ends, [row, row], color=style.color, linewidth=5, alpha=0.35, solid_capstyle="butt")
        for times, end, filled, offset in zip((starts, middles), ends, (False, True), (0.27, -0.27), strict=True):
            known = times[series].dropna()
            look: dict[str, Any] = {"color": style.color, "marker": style.marker, "linestyle": "none"}
            look["markerfacecolor"] = style.color if filled else "white"
            axes.plot(known, np.full(len(known), row + offset), markersize=3.5, alpha=0.6, **look)
            if missing := len(times) - len(known):
                axes.annotate(
                    f"{missing} of {len(times)} not known", (1, row + offset), xycoords=axes.get_yaxis_transform(),
                    ha="right", va="center", fontsize=9,
                )  # fmt: skip
            axes.plot(end, row, markersize=9, markeredgewidth=1.5, **look)
    axes.set_yticks(range(len(starts.columns)), [names[series] for series in starts.columns])
    axes.set_ylim(len(starts.columns) - 0.45, -0.55)
    axes.grid(visible=False, axis="y")


@printed
def gaps(axes: Axes, rows: Sequence[Gap], together: float) -> None:
    """Draw each row's median and interval; rows with the same label share a line, hollow above filled.

    Within the grey band, `together` to either side of 0, two times cannot be distinguished.
    """
    axes.axvspan(-together, together, color="#E6E6E6", linewidth=0)
    axes.axvline(0, color="#999999", linewidth=0.8)
    labels = list(dict.fromkeys(row.label for row in rows))
    for row in rows:
        y = labels.index(row.label) + (-0.15 if row.hollow else 0.15)
        if np.isfinite([row.low, row.high]).all():
            axes.plot([row.low, row.high], [y, y], color=BLACK, linewidth=1.5)
            axes.plot(row.value, y, "D", color=BLACK, markersize=6, markerfacecolor="white" if row.hollow else BLACK)
        else:
            axes.annotate("not known", (0, y), textcoords="offset points", xytext=(8, 0), va="center", fontsize=9)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
