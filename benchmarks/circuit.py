"""Circuits of small models: heads as discs, the paths between them as lines, beside the accuracy in
training.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ihlab.plots.style import BLUE, GREEN, LINES, ORANGE, PAGE, PINK, new_figure, printed, scaled

INPUTS = {"q": GREEN, "k": ORANGE, "v": PINK}
"""Colour of a path by the input that it ends in."""

LEAST_SWING = 1.0
"""Minimum swing (logit difference on clean minus corrupted prompts) of a model whose circuit is
drawn.
"""

Measured = tuple[pd.Series | None, Mapping[str, Any]]
"""A model's accuracy at each step (None if it was not trained), and its exact effects
(`ihlab.suite.truth`).
"""


@printed
def circuits(members: Mapping[str, Mapping[int, Measured]]) -> Figure:
    """Draw one row per model: its accuracy in training, a line per seed; then the circuit of each
    seed.

    The colour of a disc is a head's effect divided by the swing. Letters mark those of its inputs
    (q, k, v) whose own effect is `true`: at least a tenth of the swing. A line is a path with such
    an effect. Its width is the effect's size, its colour the later head's input. A path that skips
    a layer passes between that layer's heads. Layer 0 is at the bottom. Models whose swing is below
    `LEAST_SWING` have no circuit.
    """
    layers = [
        max(truth["heads"]["layer"].max() + 1 for _, truth in seeds.values())
        for seeds in members.values()
    ]
    heights = [0.65 + 0.55 * n_layers for n_layers in layers]
    shown = sorted(set().union(*members.values()))
    columns = 1 + max(map(len, members.values()))
    figure = new_figure(PAGE, sum(heights) + 0.5)
    grid = figure.subplots(
        len(members),
        columns,
        squeeze=False,
        width_ratios=[1.3] + [1] * (columns - 1),
        height_ratios=heights,
    )
    for row, (name, seeds) in zip(grid, members.items(), strict=True):
        _curves(row[0], name, {seed: curve for seed, (curve, _) in seeds.items()})
        for axes in row[1 + len(seeds) :]:
            axes.set_axis_off()
        for axes, (seed, (_, truth)) in zip(row[1:], seeds.items(), strict=False):
            if abs(truth["swing"]) < LEAST_SWING:
                axes.set_axis_off()
                axes.text(
                    0.5,
                    0.5,
                    "nothing to explain",
                    ha="center",
                    va="center",
                    transform=axes.transAxes,
                )
            else:
                _circuit(axes, truth)
            if seed:
                axes.set_yticks([])
            axes.set_title(f"seed {seed}, swing {abs(truth['swing']):.1f}", fontsize=scaled(9))
    keys = [Line2D([], [], color=BLUE, ls=LINES[seed], label=f"seed {seed}") for seed in shown]
    keys += [
        Line2D([], [], color=color, lw=3, label=f"path into {name}")
        for name, color in INPUTS.items()
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=scaled(9))
    return figure


def _curves(axes: Axes, name: str, curves: Mapping[int, pd.Series | None]) -> None:
    axes.set_title(name, fontsize="medium", loc="left", weight="bold")
    for seed, curve in curves.items():
        if curve is None:
            axes.set_axis_off()
            continue
        axes.plot(
            curve.index,
            curve,
            color=BLUE,
            linestyle=LINES[seed],
            linewidth=1.3,
            label=f"seed {seed}",
        )
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.tick_params(labelsize=scaled(9))


def _circuit(axes: Axes, truth: Mapping[str, Any]) -> None:
    heads, inputs, swing = truth["heads"], truth["inputs"].query("true"), abs(truth["swing"])
    edges = truth["edges"].query("true") if "edges" in truth else heads[:0]
    n_layers, n_heads = heads["layer"].max() + 1, heads["head"].max() + 1
    smaller = min(1, 4 / n_heads)  # size of discs and letters, relative to a layer of four heads
    for edge in edges.itertuples():
        size = max(abs(edge.effect), abs(edge.reverse)) / swing
        layers = np.linspace(
            edge.from_layer, edge.to_layer, 12 * (edge.to_layer - edge.from_layer) + 1
        )
        along = np.interp(layers, [edge.from_layer, edge.to_layer], [edge.from_head, edge.to_head])
        skipped = along[12:-12:12]
        if (abs(skipped - skipped.round()) < 0.3).any():
            along += 0.5 * np.sin(np.pi * np.linspace(0, 1, len(along)))
        axes.plot(
            along + 0.07 * (list(INPUTS).index(edge.input) - 1),
            layers,
            color=INPUTS[edge.input],
            linewidth=0.8 + 4 * min(size, 1),
            solid_capstyle="butt",
        )
    fraction = (heads["effect"] / swing).clip(-1, 1)
    axes.scatter(
        heads["head"],
        heads["layer"],
        s=430 * smaller**1.5,
        c=colormaps["RdBu_r"](0.5 + fraction / 2),
        edgecolors="#555555",
        linewidths=[2.0 if true else 0.5 for true in heads["true"]],
        zorder=3,
    )
    for (layer, head), of_head in inputs.groupby(["layer", "head"]):
        dark = abs(fraction[(heads["layer"] == layer) & (heads["head"] == head)].iloc[0]) > 0.6
        color = "white" if dark else "black"
        size = scaled(9 if smaller == 1 else 7)
        axes.text(
            head,
            layer,
            "".join(of_head["input"]),
            ha="center",
            va="center",
            size=size,
            color=color,
            zorder=4,
        )
    axes.set(xlim=(-0.6, n_heads - 0.4), ylim=(-0.5, n_layers - 0.5), xticks=range(n_heads))
    axes.set_yticks(range(n_layers), [f"layer {layer}" for layer in range(n_layers)])
    axes.tick_params(labelsize=scaled(9), length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
