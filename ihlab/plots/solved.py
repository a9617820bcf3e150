"""How many problems are solved, and what is wrong with the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes


class Mark(NamedTuple):
    """How a model is drawn."""

    color: str
    shape: str


def accuracies(axes: Axes, table: pd.DataFrame, measures: Sequence[str], marks: Mapping[str, Mark]) -> None:
    """For each measure and model the share of every seed, hollow, and their mean, filled.

    `table` has the columns model, seed, measure and share.
    """
    width = 0.8 / len(marks)
    for number, (model, mark) in enumerate(marks.items()):
        at = np.arange(len(measures)) + (number - (len(marks) - 1) / 2) * width
        for x, measure in zip(at, measures, strict=True):
            shares = table[(table["model"] == model) & (table["measure"] == measure)]["share"]
            axes.plot([x] * len(shares), shares, mark.shape, color=mark.color, mfc="none", ms=5)
            axes.plot(x, shares.mean(), mark.shape, color=mark.color, ms=9, label=model if x == at[0] else None)
    axes.set_xticks(range(len(measures)), measures)
    axes.set(xlim=(-0.5, len(measures) - 0.5), ylim=(-0.02, 1.02))
    axes.grid(visible=False, axis="x")


def error_table(axes: Axes, table: pd.DataFrame, classes: Sequence[str], models: Sequence[str]) -> None:
    """Errors in a hundred problems, by class and model: the mean over seeds, and the least and most of them.

    `table` has the columns model, seed, measure (the class) and share (errors a problem).
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
