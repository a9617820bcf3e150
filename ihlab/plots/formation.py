"""Phase changes of curves: a time-line for each seed, and the gap between two changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ihlab.plots.curves import Mark
from ihlab.plots.style import BLACK, printed


@dataclass(frozen=True)
class Gap:
    """One row of `gaps`: a difference for each seed (NaN: not known), and the median with its interval."""

    label: str
    differences: Sequence[float]
    value: float
    low: float
    high: float


def legend_keys(styles: dict[str, Mark]) -> list[Line2D]:
    """Return a legend key for each series: its symbol on a line."""
    return [
        Line2D([], [], color=style.color, linestyle=style.dashes, marker=style.marker, label=series)
        for series, style in styles.items()
    ]


@printed
def medians(axes: Axes, curves: pd.DataFrame, styles: dict[str, Mark], rise: bool) -> None:
    """Draw the median over seeds of each series, columns series, seed, step, value; the band holds every seed.

    With `rise`, each seed's curve is first rescaled to run from 0 at the first evaluation to 1 at the last.
    """
    for series, style in styles.items():
        wide = curves[curves["series"] == series].pivot_table(index="step", columns="seed", values="value")
        if wide.empty:
            continue
        if rise:
            wide = (wide - wide.iloc[0]) / (wide.iloc[-1] - wide.iloc[0])
        axes.plot(wide.index, wide.median(axis=1), color=style.color, linestyle=style.dashes, label=series)
        axes.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=style.color, alpha=0.12, linewidth=0)


@printed
def gaps(axes: Axes, rows: Sequence[Gap], together: float) -> None:
    """Draw each row's seeds as dots, stacked where they are equal, over its median and interval.

    Within the grey band, `together` to either side of 0, two changes cannot be distinguished.
    """
    axes.axvspan(-together, together, color="#E6E6E6", linewidth=0)
    axes.axvline(0, color="#999999", linewidth=0.8)
    for place, row in enumerate(rows):
        known = np.sort([value for value in row.differences if np.isfinite(value)])
        for value in np.unique(known):
            many = int((known == value).sum())
            y = place - 0.26 + 0.13 * (np.arange(many) - (many - 1) / 2)
            axes.plot(np.full(many, value), y, "o", color=BLACK, markersize=4, alpha=0.7)
        if np.isfinite([row.low, row.high]).all():
            axes.plot([row.low, row.high], [place + 0.2] * 2, color=BLACK, linewidth=2)
            axes.plot(row.value, place + 0.2, "D", color=BLACK, markersize=6)
        missing = len(row.differences) - len(known)
        if missing:
            note = f"{missing} of {len(row.differences)} not known"
            axes.annotate(note, (1, place), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
