"""Starts and ends of runs in the planes of alpha and beta, coloured by the number of steps to learn induction."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.patches import Rectangle

from ihlab.plots.landscape import loss_field
from ihlab.plots.style import BLACK, RED, printed


@printed
def start_map(axes: Axes, starts: pd.DataFrame, field: pd.DataFrame, slowest: float) -> PathCollection:
    """Draw each start as a square over the field of `loss_field`, marked as in `coloured`.

    `starts` has columns alpha1, beta1 and steps (inf: never), `field` those of `loss_field`. Colours run from 0 to
    `slowest` steps. Returns the coloured artist for a colour bar. The dashed frame is the square of Figure 2.
    """
    loss_field(axes, field, spacing=0.01, faint=True)
    axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=BLACK, linestyle="--", linewidth=1.2, zorder=3))
    points = coloured(axes, starts["alpha1"], starts["beta1"], starts["steps"], slowest, size=90, marker="s")
    low, high = float(field["alpha1"].min()), float(field["alpha1"].max())
    ticks = np.arange(np.ceil(2 * low), np.floor(2 * high) + 1) / 2
    axes.set(xlim=(low, high), ylim=(low, high), xticks=ticks, yticks=ticks)
    axes.set(xlabel=r"$\alpha_1$ at the start", ylabel=r"$\beta_1$ at the start")
    return points


@printed
def end_map(axes: Axes, runs: pd.DataFrame, slowest: float) -> PathCollection:
    """Draw each run as a dot at its final folded angles. Dots in the shaded square are nearest to the induction corner.

    `runs` has columns end_key_angle and end_value_angle, in [-pi/2, pi/2) with the induction corner at 0, and steps.
    Opposite edges are the same line: the plane is a torus.
    """
    edge = np.pi / 2
    axes.add_patch(Rectangle((-edge / 2, -edge / 2), edge, edge, facecolor="#E6E6E6", linewidth=0, zorder=0))
    points = coloured(axes, runs["end_key_angle"], runs["end_value_angle"], runs["steps"], slowest, size=22, marker="o")
    axes.plot(0, 0, marker="*", color=RED, markersize=13, zorder=5)
    ticks, names = np.linspace(-edge, edge, 5), [r"$-\pi/2$", r"$-\pi/4$", "0", r"$\pi/4$", r"$\pi/2$"]
    margin = 1.03 * edge
    axes.set(xlim=(-margin, margin), ylim=(-margin, margin), aspect="equal")
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)
    axes.set(
        xlabel=r"key angle at the end (0: $\alpha_1 = 0$; $\pm\pi/2$: $\alpha_2 = 0$)",
        ylabel=r"value angle at the end (0: $\beta_2 = 0$; $\pm\pi/2$: $\beta_1 = 0$)",
    )
    return points


def coloured(
    axes: Axes, x: pd.Series, y: pd.Series, steps: pd.Series, slowest: float, size: int, marker: str
) -> PathCollection:
    """Draw points coloured by their steps up to `slowest`, with crosses for inf. Return the coloured artist."""
    never = np.isinf(steps)
    learned, name = ~never, f"not within {slowest:.0f} steps"
    axes.scatter(x[never], y[never], s=0.6 * size, marker="x", color=BLACK, linewidths=1.3, zorder=4, label=name)
    colours: dict[str, Any] = {
        "c": steps[learned],
        "cmap": "viridis",
        "vmin": 0,
        "vmax": slowest,
        "edgecolors": "white",
    }
    return axes.scatter(x[learned], y[learned], s=size, marker=marker, linewidths=0.6, zorder=4, **colours)
