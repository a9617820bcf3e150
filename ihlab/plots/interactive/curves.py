"""Curves of runs: one line per seed; hover names the run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.curves import Line
from ihlab.plots.interactive.base import (
    ALONE,
    DASHES,
    LARGE_LETTER,
    broken,
    escaped,
    lay_out,
    panels_of,
    title_height,
)
from ihlab.plots.views import default_lines, in_order, panel_grid, values_of

HEIGHT = 220
"""Pixels of a row of panels, if there are several."""


def curves(
    data: pd.DataFrame,
    x: str,
    y: str,
    colors: str = "curve",
    panels: str | None = None,
    lines: Mapping[Any, Line] | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
) -> go.Figure:
    """Draw `y` against `x` for every seed: hover names the run, its seed, its learning rate and the
    point.

    `data` has the columns `x`, `y`, "seed" and `colors`: each value of `colors` is a kind of run,
    which a click on the legend hides. Optional columns: `panels`, with one panel per value, and
    "lr". `lines`: the style of each kind, by default as in `ihlab.plots.views.curves`. Buttons
    change to a logarithmic x axis, which leaves out 0.
    """
    xlabel, ylabel = xlabel or x, ylabel or y
    lines = lines or default_lines(in_order(data, colors))
    shown = values_of(data, panels)
    down, across = panel_grid(len(shown))
    height = ALONE if down == 1 else HEIGHT
    figure = panels_of(down, across, shown if panels else (), height, below=30)
    kinds_of_run = [name for name in (panels, colors) if name]
    names = [name for name in (*kinds_of_run, "seed", "lr") if name in data]
    named: set[object] = set()
    each: Any = data.dropna(subset=kinds_of_run).groupby(names, sort=False, dropna=False)
    for values, run in each:
        of_run = dict(zip(names, values, strict=True))
        kind, rate = of_run[colors], of_run.get("lr", np.nan)
        place = shown.index(of_run[panels]) if panels else 0
        run_name = escaped(", ".join(str(of_run[name]) for name in kinds_of_run))
        tuned = "" if np.isnan(rate) else f", learning rate {rate:g}"
        figure.add_scatter(
            x=run[x].to_numpy(),
            y=run[y].to_numpy(dtype=np.float32),
            mode="lines+markers",  # a point without neighbours has no line
            marker={"size": 3},
            name=escaped(kind),
            legendgroup=str(kind),
            showlegend=kind not in named,
            line={"color": lines[kind].color, "dash": DASHES[lines[kind].dashes], "width": 1.5},
            hovertemplate=f"{run_name}<br>seed {of_run['seed']:g}{tuned}<br>{escaped(xlabel)} %{{x}}<br>"
            f"{escaped(ylabel)} %{{y:.4g}}<extra></extra>",
            row=1 + place // across,
            col=1 + place % across,
        )
        named.add(kind)
    buttons = []
    for kind in ("linear", "log"):
        types = {f"xaxis{number or ''}.type": kind for number in (0, *range(2, len(shown) + 1))}
        buttons.append({"label": f"{kind} axis", "method": "relayout", "args": [types]})
    corner = {
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 4 + title_height(figure)},
    }
    figure.update_layout(
        updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, **corner}]
    )
    for place in range(max(0, len(shown) - across), len(shown)):
        where = {"row": 1 + place // across, "col": 1 + place % across}
        figure.update_xaxes(title_text=broken(xlabel, across, LARGE_LETTER), **where)
    figure.update_yaxes(title_text=escaped(ylabel), col=1)
    return lay_out(figure, title or f"{ylabel} by {xlabel}: a line per seed", down * height)
