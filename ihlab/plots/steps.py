"""Steps to an accuracy, a dot for every run, on an axis with a place for those that never reach it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D

from ihlab.plots.curves import Line
from ihlab.plots.style import STEPS, printed

ABOVE = 1.35
"""Height of "never", as a multiple of the last step."""

WIDTH = 0.13
"""Width of one column of seeds; settings are 1 apart."""

BESIDE = 1.16
"""Factor between the places of two curves at the same standard deviation, so that they do not overlap."""

MARKERS = "osD^v"


@printed
def steps_axis(axes: Axes, steps: pd.Series, horizon: float) -> None:
    """Make y a log axis of training steps from the least of `steps` to `horizon`, and above it "never"."""
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
    """Draw the steps of each seed at `x`, those that are inf at "never"."""
    y = steps.where(np.isfinite(steps), ABOVE * horizon).to_numpy(dtype=float)
    return axes.scatter(
        np.broadcast_to(x, y.shape), y, s=26 if filled else 20, marker=marker,
        facecolors=style.color if filled else "none", edgecolors="white" if filled else style.color,
        linewidths=0.6 if filled else 1.0, zorder=3,
    )  # fmt: skip


@printed
def steps_by_setting(
    axes: Axes, data: pd.DataFrame, settings: dict[str, str], lines: dict[str, Line], rates: Sequence[str],
    horizon: float,
) -> None:  # fmt: skip
    """Draw the steps of every run: a group for each setting, in it two columns for each curve, one for each rate.

    `data` has columns setting, curve, rate, lr, seed and steps_to_90 (inf: never). Runs of the first of `rates` are
    filled, with a bar at their median and their learning rate below; those of the second are hollow.
    `settings` maps each setting to its label.
    """
    steps_axis(axes, data["steps_to_90"], horizon)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom / (top / bottom) ** 0.07, top)  # room for the learning rates
    for group, setting in enumerate(settings):
        for number, (curve, style) in enumerate(lines.items()):
            for rate, filled in zip(rates, (True, False), strict=True):
                shown = data[(data["setting"] == setting) & (data["curve"] == curve) & (data["rate"] == rate)]
                if shown.empty:
                    continue
                x = group + (number - (len(lines) - 1) / 2) * 0.42 + (-0.09 if filled else 0.09)
                spread = x + WIDTH * (np.linspace(-0.5, 0.5, len(shown)) if len(shown) > 1 else np.zeros(1))
                steps = shown.sort_values("seed")["steps_to_90"]
                dots(axes, spread, steps, horizon, style, MARKERS[number], filled)
                if filled:
                    if np.isfinite(middle := float(steps.median())):
                        axes.hlines(middle, x - WIDTH, x + WIDTH, color=style.color, linewidth=1.2, zorder=2)
                    axes.annotate(
                        f"{shown['lr'].iloc[0]:g}", (x, 0), (0, 3), ("data", "axes fraction"),
                        textcoords="offset points", ha="center", va="bottom", fontsize=8, color="0.3",
                    )  # fmt: skip
    axes.set_xticks(range(len(settings)), list(settings.values()))
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.grid(visible=False, axis="x")
    for edge in range(1, len(settings)):
        axes.axvline(edge - 0.5, color="#E6E6E6", linewidth=0.7, zorder=0)


def legend_keys(lines: dict[str, Line], rates: Sequence[str]) -> list[Line2D]:
    """Return a key for each curve, and one for filled and one for hollow."""
    curves = [
        Line2D([], [], ls="", marker=marker, color=style.color, label=curve)
        for marker, (curve, style) in zip(MARKERS, lines.items(), strict=False)
    ]
    fills = [
        Line2D([], [], ls="", marker="o", mfc="0.3" if filled else "none", mec="0.3", label=rate)
        for rate, filled in zip(rates, (True, False), strict=True)
    ]
    return curves + fills


@printed
def steps_by_width(axes: Axes, data: pd.DataFrame, lines: dict[str, Line], horizon: float) -> None:
    """Draw the steps of every seed against the standard deviation, both on log axes, and a line through the medians.

    `data` has columns curve, embed_std, seed and steps_to_90. Steps and medians of inf, "never within `horizon`", are
    drawn on top.
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
