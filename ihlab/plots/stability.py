"""Loss differences at each learning rate, and the runs that diverge."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.style import BLUE, GREEN, LINES, ORANGE, PINK, printed

COLOURS = (ORANGE, BLUE, GREEN, PINK)


@printed
def differences_by_rate(axes: Axes, groups: Mapping[str, pd.DataFrame], controls: Mapping[str, pd.DataFrame]) -> None:
    """Draw loss differences as dots over learning rates, and beside them the mean of each seed over the rates.

    Each table has a row per seed and a column per rate. Dots of the last group in `groups` are filled, with bars at
    its means; dots of the other groups are hollow. For `controls`, only the mean is drawn, as a line.
    """
    last = list(groups)[-1]
    rates = list(groups[last])
    beside = len(rates) + 0.4
    at = [*range(len(rates)), beside]
    for number, (label, table) in enumerate(groups.items()):
        shown = table.assign(mean=table.mean(axis=1))
        places = [x + 0.16 * (number - (len(groups) - 1) / 2) for x in at for _ in range(len(shown))]
        fill = BLUE if label == last else "none"
        axes.plot(places, shown.to_numpy().T.ravel(), "o", color=BLUE, mfc=fill, ms=4.5, alpha=0.75, label=label)
    means = [*groups[last].mean(), groups[last].mean(axis=1).mean()]
    axes.hlines(means, [x - 0.3 for x in at], [x + 0.3 for x in at], color=BLUE, lw=2.5)
    for (label, table), color, style in zip(controls.items(), COLOURS[2:], LINES[1:], strict=False):
        axes.plot(range(len(rates)), table[rates].mean(), color=color, ls=style, lw=1.4, label=label)
    axes.axhline(0, color="0.3", lw=1)
    axes.set_xticks(at, [*(f"{lr:g}" for lr in rates), "mean"])
    axes.axvline(len(rates) - 0.3, color="0.8", lw=1)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)


@printed
def diverged_by_rate(axes: Axes, data: pd.DataFrame, arms: Sequence[str]) -> None:
    """Draw the fraction of runs that diverged in each arm, as bars side by side at every learning rate."""
    rates = sorted(set(data["lr"]))
    width = 0.8 / len(arms)
    for number, (arm, color) in enumerate(zip(arms, COLOURS, strict=False)):
        share = data[data["arm"] == arm].groupby("lr")["diverged"].mean().reindex(rates)
        at = [place + width * (number - (len(arms) - 1) / 2) for place in range(len(rates))]
        axes.bar(at, share, width, color=color, label=arm)
    axes.set_xticks(range(len(rates)), [f"{lr:g}" for lr in rates])
    axes.set(xlabel="learning rate", ylabel="fraction of runs that diverge", ylim=(0, 1.02))
    axes.set_axisbelow(True)
