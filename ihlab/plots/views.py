"""Views of a study's table: one dot per seed, in rows and panels; and curves over steps or lengths.

`Dots` and `Curves` declare a view. Called with a table that has one row per run (`Dots`) or several
(`Curves`), a view draws a static figure; `ihlab.plots.interactive.view` draws an interactive one.
Colours, markers and dashes are assigned in the order in which values first occur in the table.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import COLORS, LINES, PAGE, STEPS, new_figure, printed, scaled

MARKERS = "osD^vPX"
NEVER = 1.5
"""Position of "never" on an axis of steps, as a multiple of the last step."""
LETTERS = 110
"""Number of characters that fit in a line of a page."""
SPREAD = 0.36
"""Half the height of a row's dots; rows are 1 apart."""


@dataclass(frozen=True)
class Dots:
    """Draw one dot per seed and a bar at the median: a row for each value of a column, the first on
    top.

    - `x`: the drawn column, or several columns of one unit, each in its colour;
    - `panels`, `colors`: columns whose values make the panels, and the colours within a row;
    - `lines`: dotted vertical lines;
    - `log`: a logarithmic axis, by default for steps. It has a tick "never" for infinite values; on
      a linear axis they are drawn beyond the largest, without a tick.
    """

    rows: str
    x: str | Sequence[str] = "steps_to_90"
    _: KW_ONLY
    panels: str | None = None
    colors: str | None = None
    xlabel: str = "training steps to 90% accuracy"
    lines: Sequence[float] = ()
    log: bool | None = None
    xlim: tuple[float, float] | None = None

    @property
    def columns(self) -> list[str]:
        """The drawn columns."""
        return [self.x] if isinstance(self.x, str) else list(self.x)

    @property
    def is_log(self) -> bool:
        """Whether the axis is logarithmic."""
        return self.columns == ["steps_to_90"] if self.log is None else self.log

    def points(self, data: pd.DataFrame) -> pd.DataFrame:
        """Return the data with one row per dot, color by color, and with the dot's place in the
        figure.

        Added columns: `value_`; `panel_`, `color_` and `row_`: indices of the dot's panel, color
        and row; `y_`: its height; `middle_` and `half_`: middle and half the height of the band of
        dots of the same row and color.
        """
        series = self.series(data)
        half = SPREAD / len(series)
        parts = []
        for number, name in enumerate(series):
            runs, column = data, name
            if self.colors:
                runs, column = data[data[self.colors] == name], self.columns[0]
            part = runs.assign(value_=runs[column].astype(float), color_=number, half_=half)
            parts.append(part.sort_values("seed", kind="stable"))
        points = pd.concat(parts, ignore_index=True)
        points["row_"] = points[self.rows].map(in_order(data, self.rows).index)
        points["panel_"] = 0
        if self.panels:
            points["panel_"] = points[self.panels].map(self.shown(data).index)
        points["middle_"] = points["row_"] + 2 * half * (points["color_"] + 0.5) - SPREAD
        places = points.groupby(["panel_", "color_", "row_"])["seed"]
        order, last = places.cumcount(), places.transform("size") - 1
        spread = (-0.7 + 1.4 * order / last.clip(lower=1)).where(last > 0, 0.0)
        return points.assign(y_=points["middle_"] + spread * half)

    def series(self, data: pd.DataFrame) -> list[Any]:
        """Return what gets a color each: the values of the column `colors`, or the drawn columns."""
        return in_order(data, self.colors) if self.colors else self.columns

    def shown(self, data: pd.DataFrame) -> list[Any]:
        """Return the values that make the panels; [None] if there is one panel for all runs."""
        return values_of(data, self.panels)

    def __call__(self, data: pd.DataFrame) -> Figure:
        """Draw the static figure."""
        names, series, shown = in_order(data, self.rows), self.series(data), self.shown(data)
        down, across = panel_grid(len(shown))
        per_row = 0.16 + 0.1 * len(series)
        figure = new_figure(PAGE, max(2.2, (per_row * len(names) + 0.8) * down + 1.2))
        grid = figure.subplots(
            down, across, sharey=True, squeeze=False
        ).ravel()  # each panel has its own x axis
        points = self.points(data)
        for number, (axes, panel) in enumerate(zip(grid, shown, strict=False)):
            self._draw(axes, points[points["panel_"] == number])
            axes.set_yticks(range(len(names)), list(map(str, names)))
            axes.set_ylim(len(names) - 0.4, -0.6)
            if panel is not None:
                title = str(panel).replace(
                    ", ", ",\n", across // 3
                )  # one line less wide, if three are side by side
                axes.set_title(title, fontsize="medium")
        for axes in grid[len(shown) :]:
            axes.remove()
        for axes in grid[: len(shown)][-across:]:
            axes.set_xlabel(self.xlabel)
        if len(series) > 1:
            keys = []
            for name, color, marker in zip(series, COLORS, MARKERS, strict=False):
                keys += figure.axes[0].plot(
                    [], [], marker, ls="", color=color, mfc="white", label=str(name)
                )
            _legend(figure, keys)
        return figure

    def _draw(self, axes: Axes, points: pd.DataFrame) -> None:
        """Draw the dots and medians of one panel."""
        low, high, never, ticks = step_axis(points["value_"])
        if self.is_log:
            axes.set(xscale="log", xlim=(low, high))
            axes.set_xticks(list(ticks), list(ticks.values()), fontsize=scaled(9))
            axes.minorticks_off()
        if self.xlim is not None:
            axes.set_xlim(*self.xlim)
        each: Any = points.groupby(["color_", "row_"])
        for (color, _), of_row in each:
            x, y = of_row["value_"].to_numpy(), of_row["y_"].to_numpy()
            style: dict[str, Any] = {"color": COLORS[color], "mfc": "white", "ms": 4.5, "zorder": 3}
            axes.plot(np.where(np.isinf(x), never, x), y, MARKERS[color], **style)
            (middle, half), median = of_row[["middle_", "half_"]].iloc[0], float(np.median(x))
            if np.isfinite(median):
                axes.vlines(
                    median,
                    middle - half,
                    middle + half,
                    color=COLORS[color],
                    linewidth=1.6,
                    zorder=2,
                )
        for line in self.lines:
            axes.axvline(line, color="#777777", linewidth=1, linestyle=":")
        axes.set_axisbelow(True)


dots = Dots


@dataclass(frozen=True)
class Curves:
    """Draw the median of `y` over seeds against `x`, with a band from the lowest to the highest
    seed.

    `colors`, `panels`: as in `Dots`. A seed that ended earlier than others keeps its last value.
    With `each_seed`, draw a line per seed instead. `xticks`: the ticks, by default matplotlib's.
    """

    x: str
    y: str
    _: KW_ONLY
    colors: str
    panels: str | None = None
    each_seed: bool = False
    xlabel: str = ""
    ylabel: str = ""
    ylim: tuple[float, float] | None = None
    xticks: Sequence[float] | None = None

    def __call__(self, data: pd.DataFrame) -> Figure:
        """Draw the static figure."""
        shown, lines = values_of(data, self.panels), default_lines(in_order(data, self.colors))
        limits = {"ylim": self.ylim, "xticks": self.xticks}
        known_limits = {name: limit for name, limit in limits.items() if limit is not None}
        figure = new_figure(PAGE, 4.2)
        for axes, panel in zip(
            figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True
        ):
            mine = data
            if panel is not None:
                mine = data[data[self.panels] == panel]
                axes.set_title(str(panel))
            printed(learning_curves)(
                axes, mine.assign(curve=mine[self.colors]), self.x, self.y, lines, self.each_seed
            )
            axes.set(xlabel=self.xlabel or self.x, **known_limits)
        figure.axes[0].set_ylabel(self.ylabel or self.y)
        keys = [
            Line2D([], [], color=line.color, ls=line.dashes, label=str(name))
            for name, line in lines.items()
        ]
        _legend(figure, keys)
        return figure


curves = Curves


def in_order(data: pd.DataFrame, column: str) -> list[Any]:
    """Return a column's values in the order of their first rows; numbers from the smallest. NaN is
    left out.
    """
    values = list(dict.fromkeys(data[column].dropna()))
    return sorted(values) if pd.api.types.is_numeric_dtype(data[column]) else values


def values_of(data: pd.DataFrame, column: str | None) -> list[Any]:
    """Return the values `in_order` of a column that makes panels; [None] without a column."""
    return in_order(data, column) if column else [None]


def default_lines(names: Sequence[Any]) -> dict[Any, Line]:
    """Return the style of each curve."""
    return {
        name: Line(COLORS[n % len(COLORS)], LINES[n % len(LINES)]) for n, name in enumerate(names)
    }


def _legend(figure: Figure, keys: Sequence[Line2D]) -> None:
    """Draw the legend below the panels, with as many columns as the longest name allows."""
    longest = max(len(str(key.get_label())) for key in keys)
    figure.legend(
        handles=keys,
        loc="outside lower center",
        ncols=min(len(keys), max(1, LETTERS // (longest + 8))),
    )


def panel_grid(panels: int) -> tuple[int, int]:
    """Return the rows and columns in which panels are drawn."""
    across = 2 if panels == 4 else min(panels, 3)
    return -(-panels // across), across


def step_axis(drawn: "pd.Series[float]") -> tuple[float, float, float, dict[float, str]]:
    """Return the ends of a logarithmic axis of a panel's values, the place of "never", and the
    ticks with names.
    """
    values = drawn.to_numpy(dtype=float)
    finite = values[np.isfinite(values)]
    low, high = 1.0, 10.0
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
    never = NEVER * high
    last, most, names = high, high, {}
    if np.isinf(values).any():
        last, most, names = never, never / 2, {never: "never"}
    ticks = [tick for tick in STEPS if low / 1.6 <= tick <= most] or [low]
    return low / 1.3, 1.25 * last, never, {tick: f"{tick:g}" for tick in ticks} | names
