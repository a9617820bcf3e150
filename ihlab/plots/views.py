"""Views of a study's table: one dot per seed, in rows and panels; and curves over steps or lengths.

`Dots` and `Curves` declare a view. Called with a table that has one row per run (`Dots`) or several (`Curves`), a view
draws a static figure; `ihlab.plots.interactive.view` draws an interactive one. Colours, markers and
dashes are assigned in the order in which values first occur in the table.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
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

View = Callable[[pd.DataFrame], Figure]


@dataclass(frozen=True)
class Dots:
    """Draw one dot per seed and a bar at the median: a row for each value of a column, the first on top.

    - `x`: the drawn column, or several columns of one unit, each in its colour;
    - `panels`, `colors`: columns whose values make the panels, and the colours within a row;
    - `lines`: dotted vertical lines;
    - `log`: a logarithmic axis, by default for steps. Infinite values are drawn at "never".
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
        """Return the data with one row per dot, color by color, and with the dot's place in the figure.

        Added columns: `value_`; `panel_`, `color_` and `row_`: indices of the dot's panel, color and row; `y_`: its
        height; `middle_` and `half_`: middle and half the height of the band of dots of the same row and color.
        """
        names, series = in_order(data, self.rows), self.series(data)
        panels, half = self.shown(data), SPREAD / len(series)
        parts = []
        for number, name in enumerate(series):
            runs = data[data[self.colors] == name] if self.colors else data
            value = runs[self.columns[0] if self.colors else name].astype(float)
            parts.append(runs.assign(value_=value, color_=number, half_=half).sort_values("seed", kind="stable"))
        points = pd.concat(parts, ignore_index=True)
        points["row_"] = points[self.rows].map({name: place for place, name in enumerate(names)})
        points["panel_"] = points[self.panels].map({name: n for n, name in enumerate(panels)}) if self.panels else 0
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
        return in_order(data, self.panels) if self.panels else [None]

    def __call__(self, data: pd.DataFrame) -> Figure:
        """Draw the static figure."""
        names, series, shown = in_order(data, self.rows), self.series(data), self.shown(data)
        down, across = panel_grid(len(shown))
        per_row = 0.16 + 0.1 * len(series)
        figure = new_figure(PAGE, max(2.2, (per_row * len(names) + 0.8) * down + 1.2))
        grid = figure.subplots(down, across, sharey=True, squeeze=False).ravel()  # each panel has its own x axis
        points = self.points(data)
        for number, (axes, panel) in enumerate(zip(grid, shown, strict=False)):
            mine = points[points["panel_"] == number]
            low, high, never, ticks = step_axis(mine["value_"])
            if self.is_log:
                axes.set(xscale="log", xlim=(low, high))
                axes.set_xticks(list(ticks), list(ticks.values()), fontsize=scaled(9))
                axes.minorticks_off()
            if self.xlim is not None:
                axes.set_xlim(*self.xlim)
            each: Any = mine.groupby(["color_", "row_"])
            for (color, _), of_row in each:
                x, y = of_row["value_"].to_numpy(), of_row["y_"].to_numpy()
                style: dict[str, Any] = {"color": COLORS[color], "mfc": "white", "ms": 4.5, "zorder": 3}
                axes.plot(np.where(np.isinf(x), never, x), y, MARKERS[color], **style)
                (middle, half), median = of_row[["middle_", "half_"]].iloc[0], float(np.median(x))
                if np.isfinite(median):
                    axes.vlines(median, middle - half, middle + half, color=COLORS[color], linewidth=1.6, zorder=2)
            for line in self.lines:
                axes.axvline(line, color="#777777", linewidth=1, linestyle=":")
            axes.set_yticks(range(len(names)), [str(name) for name in names])
            axes.set_ylim(len(names) - 0.4, -0.6)
            axes.set_axisbelow(True)
            if panel is not None:
                axes.set_title(str(panel).replace(", ", ",\n", 1) if across > 2 else str(panel), fontsize="medium")
        for axes in grid[len(shown) :]:
            axes.remove()
        for axes in grid[: len(shown)][-across:]:
            axes.set_xlabel(self.xlabel)
        if len(series) > 1:
            keys = [
                figure.axes[0].plot([], [], marker, ls="", color=color, mfc="white", label=str(name))[0]
                for name, color, marker in zip(series, COLORS, MARKERS, strict=False)
            ]
            _legend(figure, keys)
        return figure


dots = Dots


@dataclass(frozen=True)
class Curves:
    """Draw the median of `y` over seeds against `x`, with a band from the lowest to the highest seed.

    `colors`, `panels`: as in `Dots`. A seed that ended earlier than others keeps its last value. With `each_seed`, draw
    a line per seed instead. `xticks`: the ticks, by default matplotlib's.
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
        names, shown = in_order(data, self.colors), in_order(data, self.panels) if self.panels else [None]
        limits = {name: each for name in ("ylim", "xticks") if (each := getattr(self, name)) is not None}
        figure = new_figure(PAGE, 4.2)
        lines = {name: Line(COLORS[n], LINES[n % len(LINES)]) for n, name in enumerate(names)}
        for axes, panel in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
            mine = data if panel is None else data[data[self.panels] == panel]
            printed(learning_curves)(axes, mine.assign(curve=mine[self.colors]), self.x, self.y, lines, self.each_seed)
            axes.set(title="" if panel is None else str(panel), xlabel=self.xlabel or self.x, **limits)
        figure.axes[0].set_ylabel(self.ylabel or self.y)
        _legend(
            figure, [Line2D([], [], color=line.color, ls=line.dashes, label=str(name)) for name, line in lines.items()]
        )
        return figure


curves = Curves


def in_order(data: pd.DataFrame, column: str | None) -> list[Any]:
    """Return a column's values in the order of their first rows; numbers from the smallest."""
    values = list(dict.fromkeys(data[column]))
    return sorted(values) if pd.api.types.is_numeric_dtype(data[column]) else values


def _legend(figure: Figure, keys: Sequence[Line2D]) -> None:
    """Draw the legend below the panels, with as many columns as the longest name allows."""
    longest = max(len(str(key.get_label())) for key in keys)
    figure.legend(handles=keys, loc="outside lower center", ncols=min(len(keys), max(1, LETTERS // (longest + 8))))


def panel_grid(panels: int) -> tuple[int, int]:
    """Return the rows and columns in which panels are drawn."""
    across = 2 if panels == 4 else min(panels, 3)
    return -(-panels // across), across


def step_axis(drawn: "pd.Series[float]") -> tuple[float, float, float, dict[float, str]]:
    """Return the ends of a logarithmic axis of a panel's values, the place of "never", and the ticks with names."""
    values = drawn.to_numpy(dtype=float)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (1.0, 10.0)
    never = NEVER * high
    above = [never] if np.isinf(values).any() else []
    ticks = [tick for tick in STEPS if low / 1.6 <= tick <= (never / 2 if above else high)] or [low]
    names = {**{tick: f"{tick:g}" for tick in ticks}, **dict.fromkeys(above, "never")}
    return low / 1.3, 1.25 * (never if above else high), never, names
