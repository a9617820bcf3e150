"""Head scores over training: one line per head, with the highest final scores in colour."""

import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.style import printed, scaled

NAMED = 8
"""Number of heads that are named: those with the highest final scores."""


@printed
def head_training(table: pd.DataFrame, title: str) -> Figure:
    """Draw `prefix_matching` of every head over training steps. The heads with the highest final scores are named.

    `table` is the table of `ihlab.interp.HeadMonitor`: step, layer, head and scores.
    """
    column = "prefix_matching"
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    curves = [of_head for _, of_head in table.groupby(["layer", "head"])]
    curves.sort(key=lambda of_head: -of_head[column].iloc[-1])
    for place in reversed(range(len(curves))):  # the highest are drawn on top
        curve, named = curves[place], place < NAMED
        (line,) = axes.plot(curve["step"], curve[column], color=f"C{place}" if named else "#BBBBBB")
        line.set(linewidth=1.5 if named else 0.7)
        if named:
            line.set_label(f"{curve['layer'].iloc[0]}.{curve['head'].iloc[0]}")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], title="head", fontsize=scaled(8))
    axes.set(xlabel="training step", ylabel=column, title=title)
    return figure
