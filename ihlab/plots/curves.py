"""Learning curves: the median over seeds, with a band from the lowest to the highest seed."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd
from matplotlib.axes import Axes

from tasks.config import require


@dataclass(frozen=True)
class Line:
    """Style of one curve: a colour, and dashes for black-and-white prints."""

    color: str
    dashes: str = "-"


@dataclass(frozen=True)
class Mark:
    """Style of one series with markers: a colour, and a marker and dashes for readers who cannot
    see the colour.
    """

    color: str
    marker: str
    dashes: Literal["-", "--", "-.", ":"] = "-"


def learning_curves(
    axes: Axes, data: pd.DataFrame, x: str, y: str, lines: dict[str, Line], each_seed: bool = False
) -> None:
    """Draw `y` against `x` for each curve named in `lines`.

    `data` has the columns curve, seed, `x` and `y`, with the same `x` in every seed of a curve. The
    band runs from the lowest to the highest seed. A seed that ended earlier than others keeps its
    last value. With `each_seed`, draw a line per seed instead. The other properties of lines are
    those of matplotlib's rcParams. Raises `ConfigError` for a curve with two values of one seed and
    `x`.
    """
    for name, style in lines.items():
        mine = data[data["curve"] == name].dropna(subset=[y])
        require(
            not mine.duplicated(["seed", x]).any(),
            f"The curve '{name}' has two values of one seed at the same {x}: it is several curves.",
        )
        wide = mine.pivot_table(index=x, columns="seed", values=y).ffill()
        if wide.empty:
            continue
        if each_seed:
            axes.plot(wide.index, wide, color=style.color, linestyle=style.dashes, linewidth=1.2)
            continue
        axes.plot(
            wide.index, wide.median(axis=1), color=style.color, linestyle=style.dashes, label=name
        )
        axes.fill_between(
            wide.index,
            wide.min(axis=1),
            wide.max(axis=1),
            color=style.color,
            alpha=0.18,
            linewidth=0,
        )
    axes.set_axisbelow(True)
