"""Steps to an accuracy, one dot per run, on an axis with a place for runs that never reach it."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from ihlab.plots.curves import Line
from ihlab.plots.style import STEPS, printed

ABOVE = 1.35
"""Height of "never", as a multiple of the last step."""

BESIDE = 1.16
"""Factor between the positions of two curves at the same standard deviation, so that they do not overlap."""

MARKERS = "osD^v"


@printed
def steps_axis(axes: Axes, steps: pd.Series, horizon: float) -> None:
    """Make y a log axis of training steps from the minimum of `steps` to `horizon`, with "never" above."""
    never = ABOVE * horizon
    low = min(float(steps.min()), horizon)
    ticks = [tick for tick in STEPS if low / 1.6 <= tick <= horizon]
    axes.set(yscale="log", ylim=(min([low, *ticks]) / 1.15, 1.2 * never))
    axes.set_yticks([*ticks, never], [*map(str, ticks), "never"])
    axes.minorticks_off()
    axes.axhline(horizon, color="#999999", linewidth=0.8, zorder=1)
    axes.set_ylabel("training steps to 90% accuracy")
    axes.set_axisbelow(True)


@printed
def dots(
    axes: Axes, x: float | np.ndarray, steps: pd.Series, horizon: float, style: Line, marker: str, filled: bool = True
) -> PathCollection:
    """Draw the steps of each seed at `x`. Seeds with inf steps are at "never"."""
    y = steps.where(np.isfinite(steps), ABOVE * horizon).to_numpy(dtype=float)
    return axes.scatter(
        np.broadcast_to(x, y.shape), y, s=26 if filled else 20, marker=marker,
        facecolors=style.color if filled else "none", edgecolors="white" if filled else style.color,
        linewidths=0.6 if filled else 1.0, zorder=3,
    )  # fmt: skip


@printed
def steps_by_width(axes: Axes, data: pd.DataFrame, lines: dict[str, Line], horizon: float) -> None:
    """Draw the steps of every seed against the standard deviation, both on log axes, and a line through the medians.

    `data` has columns curve, embed_std, seed and steps_to_90. Infinite steps and medians ("never within `horizon`")
    are drawn at the top.
    """
    steps_axis(axes, data["steps_to_90"], horizon)
    for number, (curve, style) in enumerate(lines.items()):
        runs = data[data["curve"] == curve].sort_values(["embed_std", "seed"])
        beside = BESIDE ** (number - (len(lines) - 1) / 2)
        for width in runs["embed_std"].unique():
            steps = runs.loc[runs["embed_std"] == width, "steps_to_90"]
            spread = BESIDE ** np.linspace(-0.35, 0.35, len(steps))
            dots(axes, width * beside * spread, steps, horizon, style, MARKERS[number], filled=False)
        middle = runs.groupby("embed_std")["steps_to_90"].median()
        at = middle.where(np.isfinite(middle), ABOVE * horizon)
        axes.plot(middle.index * beside, at, style.dashes, color=style.color, lw=1.6, zorder=2)
        axes.plot([], [], style.dashes, color=style.color, lw=1.6, marker=MARKERS[number], mfc="white", label=curve)
    widths = sorted(data["embed_std"].unique())
    axes.set_xscale("log")
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.minorticks_off()
    axes.set_xlabel("standard deviation of the embeddings at the start")
