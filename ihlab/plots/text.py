"""A text as on a page, coloured by a number of each word."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from ihlab.plots.style import printed, scaled

DARK = 0.45
"""Luminance below which text is written in white."""


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
                axes.text(column, line + 0.76, shown, family="monospace", fontsize=scaled(9), color=ink)
            column += len(part)
    axes.set(xlim=(0, columns), ylim=(line + 1, 0))
    axes.axis("off")
    return line + 1
