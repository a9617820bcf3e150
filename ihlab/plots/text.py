"""Language models on text: curves over training tokens, and gains by class of position."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from ihlab.plots.style import BLUE, ORANGE, printed

CLASSES = {
    "eligible": (BLUE, "seen before, with what comes next"),
    "misled": (ORANGE, "seen before, with something else"),
    "rest": ("0.75", "not seen before"),
}
"""Colour and legend of each class of position."""

DARK = 0.45
"""Luminance below which text is written in white."""

COLOURS = {"vanilla": ORANGE, "KV shifting": BLUE}
DEPTHS = {"1": ":", "2": "-", "3": "--"}
"""Line of each number of layers."""


@printed
def text_curves(axes: Axes, data: pd.DataFrame, column: str, arms: Sequence[str]) -> None:
    """Draw a column against training tokens, one line per seed: colour by attention, style by depth.

    `data` has arm (such as "KV shifting, 2 layers"), seed, tokens and the column.
    """
    for arm in arms:
        attention, depth = arm.split(", ")[:2]
        for number, (_, run) in enumerate(data[data["arm"] == arm].groupby("seed")):
            axes.plot(
                run["tokens"] / 1e6, run[column], color=COLOURS[attention], ls=DEPTHS[depth.split(" ")[0]], lw=1.4,
                alpha=0.85, label=arm if number == 0 else None,
            )  # fmt: skip
    axes.set_xlabel("training tokens (millions)")
    axes.set_axisbelow(True)


@printed
def gains_by_class(axes: Axes, gains: pd.DataFrame, context: int) -> None:
    """Draw each model's mean gain in bits per byte as bars, one per class of position, and seeds as dots.

    `gains` has pair (the model's name, which may be broken at commas), context, positions (a key of `CLASSES`) and
    gain, with one row per seed. The first class is labelled with its percentage of the total gain.
    """
    gains = gains[gains["context"] == context]
    pairs = list(dict.fromkeys(gains["pair"]))
    means = gains.pivot_table(index="pair", columns="positions", values="gain").loc[pairs, list(CLASSES)]
    for number, (name, (color, label)) in enumerate(CLASSES.items()):
        at = [x + 0.26 * (number - 1) for x in range(len(pairs))]
        axes.bar(at, means[name], 0.24, color=color, label=label)
        by_pair = gains[gains["positions"] == name].groupby("pair")["gain"]
        for x, pair in zip(at, pairs, strict=True):
            seeds = by_pair.get_group(pair)
            axes.plot([x] * len(seeds), seeds, "o", color="0.2", ms=2.2)
            if number == 0:
                part = f"{means.loc[pair, name] / means.loc[pair].sum():.0%} of the gain"
                axes.annotate(part, (x, max(0.0, *seeds)), (0, 5), textcoords="offset points", fontsize=9, ha="center")
    axes.axhline(0, color="0.4", lw=0.8)
    axes.set_xticks(range(len(pairs)), [pair.replace(", ", ",\n") for pair in pairs])
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.2 * (high - low))  # for the legend
    axes.set(title=f"gain over vanilla at positions whose last {context} bytes were ...", ylabel="bits per byte saved")
    axes.legend(fontsize=9, loc="upper center", ncols=len(CLASSES))
    axes.set_axisbelow(True)


@printed
def text_page(axes: Axes, words: Sequence[str], values: Sequence[float], most: float, columns: int = 100) -> int:
    r"""Draw a text as on a page, with each word's background coloured by its value: purple above 0, orange below.

    `words` are as returned by `TextTask.words`, with "\n" for the end of a line. Lines are cut after `columns`
    characters. `most` is the value of the darkest colours. Returns the number of lines drawn.
    """
    colours, line, column = ScalarMappable(TwoSlopeNorm(0.0, -most, most), "PuOr"), 0, 0
    for word, value in zip(words, values, strict=True):
        for part in re.split(r"(\\n)", word):
            if part == r"\n":
                line, column = line + 1, 0
                continue
            shown = part[: max(0, columns - column)]
            if shown:
                fill = colours.to_rgba(np.array(value))
                ink = "black" if 0.3 * fill[0] + 0.6 * fill[1] + 0.1 * fill[2] > DARK else "white"
                axes.add_patch(Rectangle((column, line), len(shown), 1, facecolor=fill, linewidth=0))
                axes.text(column, line + 0.76, shown, family="monospace", fontsize=9, color=ink)
            column += len(part)
    axes.set(xlim=(0, columns), ylim=(line + 1, 0))
    axes.axis("off")
    return line + 1
