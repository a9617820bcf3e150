"""Steps to an accuracy, one dot per run, on an axis with a place for runs that never reach it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ihlab.plots.curves import Line
from ihlab.plots.style import STEPS, new_figure, printed

ABOVE = 1.35
"""Height of "never", as a multiple of the last step."""

WIDTH = 0.13
"""Width of one column of seeds; settings are 1 apart."""

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
def steps_by_model(data: pd.DataFrame, settings: Sequence[str], lines: dict[str, Line], title: str) -> Figure:
    """Draw the steps of every seed: one group per setting, the first on top, with one line of dots per model.

    `data` has columns variant, setting, seed, lr, steps_to_90 (inf: never) and horizon. A bar is a median. Learning
    rates are at the right.
    """
    shown = [setting for setting in settings if setting in set(data["setting"])]
    models = [model for model in lines if model in set(data["variant"])]
    horizon = float(data["horizon"].max())
    figure = new_figure(8.8, 1.7 + 0.52 * len(shown))
    axes = figure.subplots()
    for group, setting in enumerate(shown):
        here = [model for model in models if model in set(data.loc[data["setting"] == setting, "variant"])]
        for number, model in enumerate(here):
            runs = data[(data["setting"] == setting) & (data["variant"] == model)]
            y = group + (number - (len(here) - 1) / 2) * 0.2
            steps, marker = runs["steps_to_90"], MARKERS[models.index(model)]
            never = np.isinf(steps)
            x = steps.where(~never, ABOVE * horizon)
            beside = np.where(never, ABOVE ** np.linspace(-0.25, 0.25, len(x)), 1.0)  # dots at "never" lie side by side
            axes.scatter(
                x * beside, np.full(len(x), y), s=24, marker=marker, color=lines[model].color, edgecolors="white",
                linewidths=0.5, zorder=3,
            )  # fmt: skip
            if np.isfinite(middle := float(steps.median())):
                axes.vlines(middle, y - 0.11, y + 0.11, color=lines[model].color, linewidth=1.6, zorder=2)
            axes.annotate(
                f"{runs['lr'].iloc[0]:g}", (1, y), (5, 0), ("axes fraction", "data"), textcoords="offset points",
                va="center", fontsize=8, color=lines[model].color, annotation_clip=False,
            )  # fmt: skip
    low = min(float(data["steps_to_90"].min()), horizon)
    ticks = [tick for tick in STEPS if low / 1.6 <= tick <= horizon]
    axes.set(xscale="log", xlim=(low / 1.3, ABOVE**2 * horizon), ylim=(len(shown) - 0.5, -0.5))
    axes.set_xticks([*ticks, ABOVE * horizon], [*map(str, ticks), "never"])
    axes.minorticks_off()
    axes.axvline(horizon, color="#999999", linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(shown)), shown)
    axes.grid(visible=False, axis="y")
    for edge in range(1, len(shown)):
        axes.axhline(edge - 0.5, color="#E6E6E6", linewidth=0.7, zorder=0)
    axes.set_xlabel("training steps to 90% accuracy (right: learning rate)")
    axes.set_axisbelow(True)
    keys = [
        Line2D([], [], ls="", marker=marker, color=lines[model].color, label=model)
        for marker, model in zip(MARKERS, models, strict=False)
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


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
