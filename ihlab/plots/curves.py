"""Learning curves: the median over seeds, with the band that holds all of them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.style import printed


@dataclass(frozen=True)
class Line:
    """Style of one curve: its colour and, for black-and-white prints, its dashes."""

    color: str
    dashes: str = "-"


@dataclass(frozen=True)
class Mark:
    """Style of one series with markers: a colour, and a marker and dashes for readers who cannot see it."""

    color: str
    marker: str
    dashes: Literal["-", "--", "-.", ":"] = "-"


@printed
def learning_curves(axes: Axes, data: pd.DataFrame, x: str, y: str, lines: dict[str, Line]) -> None:
    """Draw `y` against `x` for each curve named in `lines`.

    `data` is tidy: columns curve, seed, `x`, `y`, with the same `x` in every seed of a curve. The band
    runs from the lowest to the highest seed; a seed that ended before others keeps its last value.
    """
    for name, style in lines.items():
        wide = data[data["curve"] == name].pivot_table(index=x, columns="seed", values=y).ffill()
        if wide.empty:
            continue
        axes.plot(wide.index, wide.median(axis=1), color=style.color, linestyle=style.dashes, label=name)
        axes.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=style.color, alpha=0.18, linewidth=0)
    axes.set_axisbelow(True)


@printed
def waiting_times(
    axes: Axes, data: pd.DataFrame, lines: dict[str, Line], rates: tuple[str, str], horizon: float
) -> None:
    """Draw the steps of every run as dots, a column for each curve: hollow at the first rate, filled at the second.

    `data` has columns curve, rate and steps; inf, "never within `horizon`", is drawn as a cross above it.
    """
    for column, (name, style) in enumerate(lines.items()):
        for side, rate in zip((-0.15, 0.15), rates, strict=True):
            steps = data[(data["curve"] == name) & (data["rate"] == rate)]["steps"].to_numpy(dtype=float)
            if not len(steps):
                continue
            x = column + side + np.linspace(-0.06, 0.06, len(steps))
            known = np.isfinite(steps)
            face = style.color if rate == rates[1] else "none"
            axes.scatter(x[known], steps[known], s=22, facecolors=face, edgecolors=style.color)
            axes.scatter(x[~known], np.full((~known).sum(), 1.15 * horizon), s=24, marker="x", color=style.color)
    axes.set_yscale("log")
    axes.set_xticks(range(len(lines)), [name.replace(", ", "\n") for name in lines], fontsize=8)
    axes.scatter([], [], s=22, facecolors="none", edgecolors="0.3", label=rates[0])
    axes.scatter([], [], s=22, color="0.3", label=rates[1])
    axes.scatter([], [], s=24, marker="x", color="0.3", label=f"never in {horizon:.0f}")
    axes.legend(fontsize=8, loc="best")
