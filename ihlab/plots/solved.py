"""Fraction of problems solved, and the errors in the unsolved ones."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.curves import Mark


def by_operations(
    axes: Axes, table: pd.DataFrame, measure: str, marks: Mapping[str, Mark], trained: int, guess: bool = False
) -> None:
    """Draw a measure by number of operations: seeds hollow, their mean filled, a line after the `trained` operations.

    `table` has the columns model, seed, ops, measure and share. With `guess`, its measure "guess" is drawn dotted.
    """
    numbers = sorted(table["ops"].unique())
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    for number, (model, mark) in enumerate(marks.items()):
        shown = table[(table["model"] == model) & (table["measure"] == measure)]
        beside = (number - (len(marks) - 1) / 2) * 0.16 * step
        axes.plot(shown["ops"] + beside, shown["share"], mark.marker, color=mark.color, mfc="none", ms=4)
        means = shown.groupby("ops")["share"].mean()
        axes.plot(means.index + beside, means, mark.marker, ls="-", lw=1, color=mark.color, ms=8, label=model)
    if guess:
        shares = table[table["measure"] == "guess"].groupby("ops")["share"].mean()
        axes.plot(shares.index, shares, color="0.45", ls=":", lw=1.4, label="always the commonest answer")
    axes.axvline(trained + step / 2, color="0.45", ls="--", lw=1, label="most operations in training")
    axes.set_xticks(numbers)
    axes.set(xlim=(numbers[0] - step / 2, numbers[-1] + step / 2), ylim=(-0.02, 1.02))
    axes.grid(visible=False, axis="x")


def errors_by_class(axes: Axes, table: pd.DataFrame, classes: Sequence[str], marks: Mapping[str, Mark]) -> None:
    """Draw errors per hundred problems, one line per class, the first on top: the mean and range over seeds.

    `table` has the columns model, seed, measure (the class) and share (errors per problem). The axis is linear up to 1
    and logarithmic above.
    """
    for number, (model, mark) in enumerate(marks.items()):
        mine = table[(table["model"] == model) & table["measure"].isin(classes)]
        errors = 100 * mine.groupby("measure")["share"].agg(["mean", "min", "max"]).loc[list(classes)]
        y = np.arange(len(classes)) + (number - (len(marks) - 1) / 2) * 0.3
        axes.hlines(y, errors["min"], errors["max"], color=mark.color, lw=1.2)
        axes.plot(errors["mean"], y, mark.marker, color=mark.color, ms=7, label=model)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    axes.set_xlim(left=-0.08)
    axes.minorticks_off()
    axes.set_yticks(range(len(classes)), list(classes))
    axes.set_ylim(len(classes) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    for edge in range(1, len(classes)):
        axes.axhline(edge - 0.5, color="#E6E6E6", lw=0.7, zorder=0)
    axes.set_axisbelow(True)
