"""Heads of a model: shift weights through training, maps of scores and of exact effects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.grids import grid
from ihlab.plots.head_map import DRAWN, colours_of, framed, grid_of, shown_scores
from ihlab.plots.heads import SHIFT_COLORS, require_shift, shifted_token
from ihlab.plots.interactive.base import DASHES, escaped, lay_out, panels_of
from ihlab.plots.style import LINES, ORANGE

GREEK = {"alpha": "α", "beta": "β"}
HEIGHT = 210
"""Pixels of a row of panels with shift weights."""


def shift_weights(metrics: pd.DataFrame, title: str = "Shift weights over training") -> go.Figure:
    """Draw alpha and beta of every key/value head over training: hover names the weight, the step
    and the value.

    `metrics` is that of a run with a shift and has the columns step, alpha1_L.G ..., beta1_L.G ...,
    or only one kind. Raises `ConfigError` if it has neither.
    """
    require_shift(metrics)
    weights = metrics.melt(
        "step", list(metrics.filter(regex=r"^(alpha|beta)\d+_")), "column", "weight"
    )
    parts = weights["column"].str.extract(
        r"^(?P<kind>alpha|beta)(?P<back>\d+)_(?P<layer>\d+)\.(?P<group>\d+)$"
    )
    weights = weights.join(parts.astype({"back": int, "layer": int, "group": int}))
    n_layers, n_groups = (1 + int(weights[name].max()) for name in ("layer", "group"))
    titles = [f"key/value head {layer}.{group}" for layer, group in np.ndindex(n_layers, n_groups)]
    figure = panels_of(n_layers, n_groups, titles, HEIGHT, below=27, shared_xaxes=True)
    named: set[str] = set()
    each: Any = weights.groupby(["kind", "back", "layer", "group"])
    for (kind, back, layer, group), curve in each:
        color, shifted = SHIFT_COLORS[kind]
        name = f"{GREEK[kind]}<sub>{back}</sub> {shifted}, {shifted_token(back)}"
        figure.add_scatter(
            x=curve["step"].to_numpy(),
            y=curve["weight"].to_numpy(dtype=np.float32),
            mode="lines+markers",  # a point without neighbours has no line
            marker={"size": 3},
            name=name,
            legendgroup=name,
            showlegend=name not in named,
            row=layer + 1,
            col=group + 1,
            line={"color": color, "dash": DASHES[LINES[(back - 1) % len(LINES)]]},
            hovertemplate=f"key/value head {layer}.{group}<br>{name}<br>step %{{x}}<br>weight %{{y:.4f}}"
            "<extra></extra>",
        )
        named.add(name)
    figure.add_hline(0, line={"color": "#999999", "width": 1})
    figure.update_xaxes(title_text="training step", row=n_layers).update_yaxes(
        title_text="weight", col=1
    )
    return lay_out(figure, title, HEIGHT * n_layers)


def head_map(
    scores: pd.DataFrame, columns: Sequence[str] = DRAWN, title: str = "Scores of heads"
) -> go.Figure:
    """Draw scores of every head, a map of layers and heads for each column: hover names the head
    and its score.

    `scores` and `columns` are those of `ihlab.plots.head_map.head_map`; induction heads have an
    orange frame. Raises `ConfigError` if the table has none of the columns.
    """
    scores, shown = shown_scores(scores, columns)
    maps = {name: grid_of(scores, name) for name in shown}
    colours = [colours_of(name, one) for name, one in maps.items()]
    figure = _maps(maps, "head", "layer", "head %{y}.%{x}", colours)
    for layer, head in framed(scores):  # a map's first row and column are layer 0 and head 0
        frame = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
        figure.add_shape(
            type="rect", **frame, row="all", col="all", line={"color": ORANGE, "width": 3}
        )
    return lay_out(figure, title, _height(maps))


def effects(table: pd.DataFrame, *estimates: str, title: str = "Exact effects") -> go.Figure:
    """Draw the exact effect of every head, input of a head, or edge, beside the estimates of
    attribution methods.

    `table` is that of `ihlab.attribution.exact`, with a further column for each of `estimates`. All
    maps share one colour scale: blue raises the metric, red lowers it. Hover names the node and the
    number.
    """
    row, column = "{layer}", "{head}"
    x, y, node = "head", "layer", "head %{y}.%{x}"
    if "from_layer" in table:
        row, column = "{from_layer}.{from_head}", "{to_layer}.{to_head}"
        x, y, node = "to an input of head", "from head", "head %{y} to %{x}"
    elif "input" in table:
        x = "head and input"
    if "input" in table:
        column += " {input}"
    named = table.rename(columns={"effect": "exact effect"})
    nodes: Any = table.to_dict("records")
    named["row"] = [row.format(**each) for each in nodes]
    named["column"] = [column.format(**each) for each in nodes]
    row_names, column_names = list(named["row"].unique()), list(named["column"].unique())
    maps = {}
    for name in ("exact effect", *estimates):
        maps[name] = grid(named, "row", "column", name, row_names, column_names)
    drawn = named[list(maps)].to_numpy(dtype=float)
    most = float(np.nanmax(np.abs(drawn), initial=1e-9))
    figure = _maps(maps, x, y, node, [("RdBu", -most, most)])
    return lay_out(figure, title, _height(maps))


def _maps(
    maps: dict[str, pd.DataFrame],
    x: str,
    y: str,
    node: str,
    colours: Sequence[tuple[str, float, float]],
) -> go.Figure:
    """Draw maps beside each other, with a colour scale for each map, or one for all maps.

    A scale is plotly's name of it, and the values at its ends.
    """
    between = 0.0
    if len(maps) > 1:
        between = (0.03 if len(colours) == 1 else 0.16) / (
            len(maps) - 1
        )  # a bar of its scale is beside each map
    width = (1 - between * (len(maps) - 1)) / len(maps)
    figure = panels_of(1, len(maps), list(maps), between=between)
    for number, (name, one) in enumerate(maps.items()):
        scale, least, most = colours[min(number, len(colours) - 1)]
        figure.add_heatmap(
            x=list(map(str, one.columns)),
            y=list(map(str, one.index)),
            z=one.to_numpy(dtype=np.float32),
            name=name,
            xgap=1,
            ygap=1,
            colorscale=scale,
            zmin=least,
            zmax=most,
            hovertemplate=f"{node}<br>{escaped(name)} %{{z:.3f}}<extra></extra>",
            hoverongaps=False,
            colorbar={"x": width + number * (width + between), "thickness": 10, "xpad": 4},
            showscale=number >= len(maps) - len(colours),
            row=1,
            col=number + 1,
        )
    figure.update_xaxes(title_text=x, type="category", showgrid=False)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False).update_yaxes(
        title_text=y, col=1
    )
    return figure.update_layout(plot_bgcolor="#DDDDDD")


def _height(maps: dict[str, pd.DataFrame]) -> int:
    """Return the pixels of the rows of maps."""
    return min(700, max(150, 34 * max(map(len, maps.values()))))
