"""One dot per seed of a study, which says on hover which run it is and which claims it enters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.interactive.base import FOOT, TITLE, escaped, lay_out, panels_of
from ihlab.plots.style import COLORS
from ihlab.plots.views import SPREAD, Dots, in_order, panel_grid, step_axis

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
LISTED = 6
"""Number of claims that the text of a dot names; it counts the others."""

Claims = Mapping[str, Iterable[Mapping[str, Any]]]
"""The cells that each claim compares, by the claim's id. A cell gives columns their values."""


def dots(
    data: pd.DataFrame,
    rows: str,
    x: str | Sequence[str] = "steps_to_90",
    panels: str | None = None,
    colors: str | None = None,
    claims: Claims | None = None,
    lines: Sequence[float] = (),
    log: bool | None = None,
    title: str = "",
    xlabel: str = "training steps to 90% accuracy",
) -> go.Figure:
    """Draw one dot per seed and a bar at the median: hover names the cell, the seed, the value and the claims.

    `rows`, `x`, `panels`, `colors`, `lines` and `log` are those of `ihlab.plots.views.Dots`. `claims`: the cells that
    each claim compares, by its id. Infinite values are drawn at "never". A click on the legend hides a colour.
    """
    view = Dots(rows, x, panels=panels, colors=colors, log=log)
    names, shown = in_order(data, rows), in_order(data, panels) if panels else [None]
    series = in_order(data, colors) if colors else view.columns
    points = pd.concat([_points(data, view, names, number, name, claims or {}) for number, name in enumerate(series)])
    down, across = panel_grid(len(shown))
    inner, gap = max(120, len(names) * (14 + 10 * len(series))), 76  # pixels of a panel, and between two
    figure = panels_of(down, across, gap / (down * (inner + gap) - gap), shown if panels else None)
    for place, panel in enumerate(shown):
        cell = {"row": 1 + place // across, "col": 1 + place % across}
        mine = data if panel is None else data[data[panels] == panel]
        low, high, never, ticks = step_axis(mine[view.columns])
        each: Any = points[mine.index.get_indexer_for(points.index) >= 0].groupby("number")
        for number, of_color in each:
            _draw(figure, of_color.assign(never=never), int(number), series, xlabel, cell)
        for line in lines:
            figure.add_vline(line, line={"color": "#777777", "dash": "dot", "width": 1}, **cell)
        if view.is_log:
            figure.update_xaxes(
                type="log", range=np.log10([low, high]), tickvals=list(ticks), ticktext=list(ticks.values()), **cell
            )
        figure.update_xaxes(title_text=xlabel if place + across >= len(shown) else None, **cell)
    for number, name in enumerate(series if len(series) > 1 else ()):
        figure.add_scatter(x=[None], y=[None], mode="markers", showlegend=True, **_style(number, name))
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=list(map(escaped, names)), range=[len(names) - 0.4, -0.6]
    )
    figure.update_yaxes(title_text=rows, col=1)
    return lay_out(figure, title or f"{xlabel} by {rows}: a dot per seed", TITLE + FOOT + down * (inner + gap) - gap)


def _points(
    data: pd.DataFrame, view: Dots, names: Sequence[Any], number: int, name: Any, claims: Claims
) -> pd.DataFrame:
    """Return the dots of one colour: value, seed, place and text of each, by the index of the data."""
    runs = data[data[view.colors] == name] if view.colors else data
    column = view.columns[0] if view.colors else name
    runs = runs[runs[column].notna()].sort_values("seed")
    cell_columns = [each for each in (view.rows, view.panels, view.colors) if each]
    cells = runs[cell_columns].astype(str).agg(", ".join, axis=1) if len(runs) else pd.Series(dtype=str)
    by_place = runs.groupby([each for each in (view.panels, view.rows) if each])["seed"]
    order, count = by_place.cumcount(), by_place.transform("size")
    spread = (-0.7 + 1.4 * order / (count - 1).clip(lower=1)).where(count > 1, 0.0)
    row = runs[view.rows].map({value: place for place, value in enumerate(names)})
    n_series = len(in_order(data, view.colors)) if view.colors else len(view.columns)
    return pd.DataFrame(
        {
            "number": number,
            "row": row,
            "middle": row + SPREAD * 2 * ((number + 0.5) / n_series - 0.5),
            "half": SPREAD / n_series,
            "spread": spread,
            "value": runs[column].astype(float),
            "seed": runs["seed"],
            "rate": runs.get("lr", np.nan),
            "cell": cells.map(escaped) + ("" if view.colors or len(view.columns) == 1 else f": {escaped(name)}"),
            "claims": _entered(runs, claims),
        }
    )


def _entered(runs: pd.DataFrame, claims: Claims) -> list[str]:
    """Return the text that names the claims of each run."""
    entered: list[list[str]] = [[] for _ in range(len(runs))]
    for claim, cells in claims.items():
        inside = np.zeros(len(runs), dtype=bool)
        for cell in cells:
            inside |= np.logical_and.reduce([runs[column] == value for column, value in cell.items() if column in runs])
        for place in np.flatnonzero(inside):
            entered[place].append(escaped(claim))
    return [_listed(names) for names in entered]


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = [f"and {len(names) - LISTED} more"] if len(names) > LISTED else []
    return "<br>".join(["<br>claims:", *names[:LISTED], *more])


def _style(number: int, name: object) -> dict[str, Any]:
    marker = {"color": COLORS[number], "symbol": SYMBOLS[number], "size": 8, "line": {"width": 1.8}}
    return {"marker": marker, "name": escaped(name), "legendgroup": str(name)}


def _draw(
    figure: go.Figure, points: pd.DataFrame, number: int, series: Sequence[Any], xlabel: str, cell: dict[str, int]
) -> None:
    """Draw the dots of one colour in a panel. Each trace has the dots that share the text around seed and value."""
    style = _style(number, series[number])
    grouped: Any = points.assign(endless=np.isinf(points["value"])).groupby(
        ["cell", "rate", "claims", "endless"], dropna=False
    )
    for (name, rate, claims, endless), alike in grouped:
        value = "never" if endless else "%{x:.5~g}"
        tuned = "" if np.isnan(rate) else f", learning rate {rate:g}"
        figure.add_scatter(
            x=(alike["never"] if endless else alike["value"]).to_numpy(dtype=np.float32),
            y=(alike["middle"] + alike["spread"] * alike["half"]).to_numpy(dtype=np.float32),
            customdata=alike["seed"].to_numpy(),
            mode="markers",
            showlegend=False,
            **style,
            **cell,
            hovertemplate=f"{name}<br>seed %{{customdata}}{tuned}<br>{xlabel}: {value}{claims}<extra></extra>",
        )
    bars = points.groupby("middle").agg(value=("value", "median"), half=("half", "first")).reset_index()
    bars = bars[np.isfinite(bars["value"])]
    middle, half = (bars[name].to_numpy(dtype=np.float32) for name in ("middle", "half"))
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
