"""Where runs start and end in the plane of alpha1 and beta1, coloured by the steps they take to find induction."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.patches import Rectangle

from ihlab.plots.landscape import loss_field
from ihlab.plots.style import BLACK, ORANGE, RED, printed


@printed
def start_map(axes: Axes, starts: pd.DataFrame, field: pd.DataFrame, slowest: float) -> PathCollection:
    """Each start as a square over the field of `loss_field`, a cross where induction is not found.

    `starts` has columns alpha1, beta1 and steps (inf: never), `field` those of `loss_field`. Colours run from 0 to
    `slowest` steps; what has them is returned, for a colour bar. The dashed frame is Figure 2's square.
    """
    loss_field(axes, field, spacing=0.01, faint=True)
    axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=BLACK, linestyle="--", linewidth=1.2, zorder=3))
    found = coloured(axes, starts["alpha1"], starts["beta1"], starts["steps"], slowest, size=90, marker="s")
    low, high = float(field["alpha1"].min()), float(field["alpha1"].max())
    ticks = np.arange(np.ceil(2 * low), np.floor(2 * high) + 1) / 2
    axes.set(xlim=(low, high), ylim=(low, high), xticks=ticks, yticks=ticks)
    axes.set(xlabel=r"$\alpha_1$ at the start", ylabel=r"$\beta_1$ at the start")
    return found


@printed
def end_map(axes: Axes, runs: pd.DataFrame, slowest: float) -> PathCollection:
    """Each run as a dot at its `own_key` and `own_value` share of the end; the shaded quarter is induction's."""
    axes.add_patch(Rectangle((0, 0.5), 0.5, 0.5, facecolor="#E6E6E6", linewidth=0, zorder=0))
    found = coloured(axes, runs["own_key"], runs["own_value"], runs["steps"], slowest, size=22, marker="o")
    axes.plot(0, 1, marker="*", color=RED, markersize=13, clip_on=False, zorder=5)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set(
        xlabel=r"$|\alpha_1| / (|\alpha_1| + |\alpha_2|)$ at the end",
        ylabel=r"$|\beta_1| / (|\beta_1| + |\beta_2|)$ at the end",
    )
    return found


def coloured(
    axes: Axes, x: pd.Series, y: pd.Series, steps: pd.Series, slowest: float, size: int, marker: str
) -> PathCollection:
    """Points coloured by finite steps, and crosses where steps are inf; returns what has the colours."""
    never = np.isinf(steps)
    axes.scatter(x[never], y[never], s=0.6 * size, marker="x", color=BLACK, linewidths=1.3, zorder=4)
    return axes.scatter(
        x[~never], y[~never], c=steps[~never], s=size, marker=marker, cmap="viridis", vmin=0, vmax=slowest,
        edgecolors="white", linewidths=0.6, zorder=4,
    )  # fmt: skip


@printed
def flow_times(axes: Axes, runs: pd.DataFrame, slowest: float) -> None:
    """Steps to induction against the time of the flow; what never finds it stands above the line.

    `runs` has columns flow_time, steps (inf: never) and basin: circles flow to induction, triangles to the other
    solution.
    """
    top = 1.15 * slowest
    for basin, marker, color in (("induction", "o", BLACK), ("negative", "^", ORANGE)):
        mine = runs[(runs["basin"] == basin) & np.isfinite(runs["flow_time"])]
        axes.scatter(
            mine["flow_time"], mine["steps"].clip(upper=top), s=18, marker=marker, facecolors="none",
            edgecolors=color, linewidths=0.9, label=f"the flow leads to the {basin} solution",
        )  # fmt: skip
    axes.axhline(slowest, color="#999999", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1.0)  # some starts are decided at time 0
    times = runs["flow_time"]
    axes.set(xlim=(0, max(1.0, 1.5 * times[np.isfinite(times)].max())), ylim=(0, 1.3 * slowest))
    ticks = [tick for tick in axes.get_yticks() if tick <= slowest]
    axes.set_yticks([*ticks, top], [*(f"{tick:g}" for tick in ticks), "never"])
    axes.set(xlabel="time that the flow of Theorem 3.4 takes", ylabel="training steps to an accuracy of 0.9")
