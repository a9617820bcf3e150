"""Learning curves: the median over seeds, with the band that holds all of them."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from ihlab.plots.style import printed


@dataclass(frozen=True)
class Line:
    """How one curve looks: its colour and, for readers of black-and-white prints, its dashes."""

    color: str
    dashes: str = "-"


@printed
def learning_curves(axes: Axes, data: pd.DataFrame, x: str, y: str, lines: dict[str, Line]) -> None:
    """Draw `y` against `x` for each curve named in `lines`.

    `data` is tidy: columns curve, seed, `x`, `y`, with the same `x` in every seed of a curve. The band
    runs from the lowest to the highest seed.
    """
    for name, look in lines.items():
        by_x = data[data["curve"] == name].groupby(x)[y]
        if by_x.ngroups == 0:
            continue
        middle, low, high = by_x.median(), by_x.min(), by_x.max()
        axes.plot(middle.index, middle, color=look.color, linestyle=look.dashes, label=name)
        axes.fill_between(middle.index, low, high, color=look.color, alpha=0.18, linewidth=0)
    axes.set_axisbelow(True)
