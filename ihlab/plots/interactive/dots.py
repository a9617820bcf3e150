"""One dot per seed of a study; hover names the run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.interactive.base import LARGE_LETTER, LINE, broken, escaped, lay_out, panels_of
from ihlab.plots.style import COLORS
from ihlab.plots.views import Dots, in_order, panel_grid, step_axis

SYMBOLS = (
    "circle-open",
    "square-open",
    "diamond-open",
    "triangle-up-open",
    "triangle-down-open",
    "cross-open",
    "x-open",
)
"""plotly's names of the markers of `ihlab.plots.views`."""
GAP = 76
"""Pixels between two rows of panels."""


def dots(view: Dots, data: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw one dot per seed and a bar at the median: hover names the cell, the seed and the value.

    Infinite values are drawn at the tick "never". A click on the legend hides a colour.
    """
    names, shown, series = in_order(data, view.rows), view.shown(data), view.series(data)
    points = view.points(data).dropna(subset=["value_"])
    points["cell_"] = ""
    for column in (view.rows, view.panels, view.colors):
        if column:
            points["cell_"] += ", " + points[column].map(escaped)
    if view.colors is None and len(series) > 1:
        points["cell_"] += points["color_"].map(lambda number: f": {escaped(series[number])}")
    points["cell_"] = points["cell_"].str.removeprefix(", ")
    points["lr"] = points.get("lr", np.nan)
    down, across = panel_grid(len(shown))
    inner = max(120, len(names) * (14 + 10 * len(series)))  # pixels of a panel
    titles = shown if view.panels else ()
    figure = panels_of(down, across, titles, inner + GAP, below=GAP - LINE)
    for place in range(len(shown)):
        cell = {"row": 1 + place // across, "col": 1 + place % across}
        mine = points[points["panel_"] == place]
        low, high, never, ticks = step_axis(mine["value_"])
        each: Any = mine.assign(never_=never).groupby("color_")
        for number, of_color in each:
            _draw(figure, of_color, number, series, view.xlabel, cell)
        for line in view.lines:
            figure.add_vline(line, line={"color": "#777777", "dash": "dot", "width": 1}, **cell)
        if view.is_log:
            marks = {"tickvals": list(ticks), "ticktext": list(ticks.values())}
            figure.update_xaxes(type="log", range=np.log10([low, high]), **marks, **cell)
        if place + across >= len(shown):
            figure.update_xaxes(title_text=broken(view.xlabel, across, LARGE_LETTER), **cell)
    if len(series) > 1:
        for number, name in enumerate(series):
            figure.add_scatter(
                x=[None], y=[None], mode="markers", showlegend=True, **_style(number, name)
            )
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=list(map(escaped, names)))
    figure.update_yaxes(range=[len(names) - 0.4, -0.6]).update_yaxes(
        title_text=escaped(view.rows), col=1
    )
    title = title or f"{view.xlabel} by {view.rows}: a dot per seed"
    return lay_out(figure, title, down * (inner + GAP) - GAP)


def _style(number: int, name: object) -> dict[str, Any]:
    marker = {"color": COLORS[number], "symbol": SYMBOLS[number], "size": 8, "line": {"width": 1.8}}
    return {"marker": marker, "name": escaped(name), "legendgroup": str(name)}


def _draw(
    figure: go.Figure,
    points: pd.DataFrame,
    number: int,
    series: Sequence[Any],
    xlabel: str,
    cell: dict[str, int],
) -> None:
    """Draw the dots of one colour in a panel. In a trace, hover texts differ only in seed and
    value.
    """
    style = _style(number, series[number])
    points = points.assign(endless_=np.isinf(points["value_"]))
    grouped: Any = points.groupby(["cell_", "lr", "endless_"], dropna=False)
    for (name, rate, endless), alike in grouped:
        column, value = ("never_", "never") if endless else ("value_", "%{x:.5~g}")
        tuned = "" if np.isnan(rate) else f", learning rate {rate:g}"
        figure.add_scatter(
            x=alike[column].to_numpy(dtype=np.float32),
            y=alike["y_"].to_numpy(dtype=np.float32),
            customdata=alike["seed"].to_numpy(),
            mode="markers",
            showlegend=False,
            **style,
            **cell,
            hovertemplate=f"{name}<br>seed %{{customdata}}{tuned}<br>{escaped(xlabel)}: {value}<extra></extra>",
        )
    bars = (
        points.groupby("middle_")
        .agg(value=("value_", "median"), half=("half_", "first"))
        .reset_index()
    )
    bars = bars[np.isfinite(bars["value"])]
    middle, half = (bars[name].to_numpy(dtype=np.float32) for name in ("middle_", "half"))
    ends = np.stack([middle - half, middle + half, middle * np.nan], axis=1)
    figure.add_scatter(
        x=np.repeat(bars["value"].to_numpy(dtype=np.float32), 3),
        y=ends.ravel(),
        mode="lines",
        line={"color": COLORS[number], "width": 2.5},
        hoverinfo="skip",
        showlegend=False,
        name=style["name"],
        legendgroup=style["legendgroup"],
        **cell,
    )
