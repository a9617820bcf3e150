"""Shares of problems solved, and the errors in the others."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.curves import Mark


def by_operations(
    axes: Axes, table: pd.DataFrame, measure: str, marks: Mapping[str, Mark], trained: int, guess: bool = False
) -> None:
    """Draw a measure against the number of operations: seeds hollow, their mean filled, a line after those of training.

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


def error_table(axes: Axes, table: pd.DataFrame, classes: Sequence[str], models: Sequence[str]) -> None:
    """Write errors in a hundred problems, by class and model: the mean over seeds, and the least and most of them.

    `table` has the columns model, seed, measure (the class) and share (errors per problem).
    """
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(len(classes) + 0.5, -1.5))
    columns = np.linspace(0.68, 1.0, len(models)) if len(models) > 1 else [1.0]
    for x, model in zip(columns, models, strict=True):
        axes.text(x, -1, model, ha="right", weight="bold")
        for y, name in enumerate(classes):
            errors = 100 * table[(table["model"] == model) & (table["measure"] == name)]["share"]
            axes.text(x, y, f"{errors.mean():.1f}  ({errors.min():.1f}–{errors.max():.1f})", ha="right")
    for y, name in enumerate(classes):
        axes.text(0, y, name, ha="left")
    axes.plot([0, 1], [-0.6, -0.6], color="black", linewidth=0.8)
