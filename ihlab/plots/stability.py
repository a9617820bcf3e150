"""Losses against learning rates, and the runs that diverge."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.style import BLUE, GREEN, LINES, ORANGE, PINK, printed

COLOURS = (ORANGE, BLUE, GREEN, PINK)


@printed
def loss_by_rate(axes: Axes, data: pd.DataFrame, arms: Sequence[str]) -> None:
    """Draw each arm's mean last loss as a line over learning rates, and its runs as dots: crosses if they diverged.

    `data` has arm, lr, seed, last, frequencies (the loss from which on a run has diverged: a dotted line) and diverged.
    """
    for arm, color, style in zip(arms, COLOURS, LINES, strict=False):
        shown = data[data["arm"] == arm]
        mean = shown.groupby("lr")["last"].mean()
        axes.plot(mean.index, mean, color=color, ls=style, label=arm)
        for marker, runs in (("o", shown[~shown["diverged"]]), ("x", shown[shown["diverged"]])):
            axes.plot(runs["lr"], runs["last"], marker, color=color, ms=4, alpha=0.6)
    axes.plot([], [], "x", color="0.4", ms=4, label="a run that diverged")
    axes.axhline(data["frequencies"].iloc[0], color="0.5", lw=1, ls=":", label="frequencies of tokens alone")
    axes.set_xscale("log", base=2)
    rates = sorted(set(data["lr"]))
    axes.set_xticks(rates, [f"{lr:g}" for lr in rates], rotation=45)
    axes.minorticks_off()
    axes.set_xlabel("learning rate")
    axes.set(ylabel="held-out loss at the end (nats a token)", title="loss")
    axes.legend(fontsize=9, loc="upper left", frameon=True, facecolor="white", framealpha=1, edgecolor="none")
    axes.set_axisbelow(True)


@printed
def diverged_by_rate(axes: Axes, data: pd.DataFrame, arms: Sequence[str]) -> None:
    """Draw the share of each arm's runs that diverged, as bars side by side at every learning rate."""
    rates = sorted(set(data["lr"]))
    width = 0.8 / len(arms)
    for number, (arm, color) in enumerate(zip(arms, COLOURS, strict=False)):
        share = data[data["arm"] == arm].groupby("lr")["diverged"].mean().reindex(rates)
        at = [place + width * (number - (len(arms) - 1) / 2) for place in range(len(rates))]
        axes.bar(at, share, width, color=color, label=arm)
    axes.set_xticks(range(len(rates)), [f"{lr:g}" for lr in rates], rotation=45)
    axes.set(xlabel="learning rate", ylabel="share of runs", ylim=(0, 1.02), title="diverged")
    axes.set_axisbelow(True)
