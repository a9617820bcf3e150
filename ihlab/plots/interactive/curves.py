"""Curves of runs: one line per seed; hover names the run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.curves import Line
from ihlab.plots.interactive.base import DASHES, FOOT, TITLE, escaped, lay_out, panels_of
from ihlab.plots.style import COLORS, LINES
from ihlab.plots.views import in_order, panel_grid


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
    """Draw `y` against `x` for every seed: hover names the run, its seed, its learning rate and the point.

    `data` has the columns `x`, `y`, "seed" and `colors`: each value of `colors` is a kind of run, which a click on the
    legend hides. Optional columns: `panels`, with one panel per value, and "lr". `lines`: the style of each kind,
    by default as in `ihlab.plots.views.curves`. Buttons change to a logarithmic x axis, which leaves out 0.
    """
    kinds, shown = in_order(data, colors), in_order(data, panels) if panels else [None]
    lines = lines or {kind: Line(COLORS[n], LINES[n % len(LINES)]) for n, kind in enumerate(kinds)}
    down, across = panel_grid(len(shown))
    figure = panels_of(down, across, 0.2 / down, shown if panels else None)
    names = [name for name in (panels, colors, "seed", "lr") if name in data]
    legend: set[object] = set()
    for values, run in data.groupby(names, sort=False):
        of = dict(zip(names, values, strict=True))
        place = shown.index(of[panels] if panels else None)
        run_name = escaped(", ".join(str(of[name]) for name in (panels, colors) if name))
        kind, rate = of[colors], f", learning rate {of['lr']:g}" if "lr" in of else ""
        figure.add_scatter(
            x=run[x].to_numpy(),
            y=run[y].to_numpy(dtype=np.float32),
            mode="lines",
            name=escaped(kind),
            legendgroup=str(kind),
            showlegend=kind not in legend,
            line={"color": lines[kind].color, "dash": DASHES[lines[kind].dashes], "width": 1.5},
            hovertemplate=f"{run_name}<br>seed {of['seed']:g}{rate}<br>{xlabel or x} %{{x}}<br>"
            f"{ylabel or y} %{{y:.4g}}<extra></extra>",
            row=1 + place // across,
            col=1 + place % across,
        )
        legend.add(kind)
    axes = ["xaxis", *(f"xaxis{n}" for n in range(2, len(shown) + 1))]
    buttons = [
        {"label": f"{kind} axis", "method": "relayout", "args": [{f"{axis}.type": kind for axis in axes}]}
        for kind in ("linear", "log")
    ]
    corner = {"x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "pad": {"b": 22 if panels else 4}}
    figure.update_layout(updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, **corner}])
    for place in range(max(0, len(shown) - across), len(shown)):
        figure.update_xaxes(title_text=xlabel or x, row=1 + place // across, col=1 + place % across)
    figure.update_yaxes(title_text=ylabel or y, col=1)
    return lay_out(
        figure,
        title or f"{ylabel or y} by {xlabel or x}: a line per seed",
        TITLE + FOOT + down * (280 if down == 1 else 220),
    )
