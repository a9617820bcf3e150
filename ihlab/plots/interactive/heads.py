"""Heads of a model: attention patterns and shift weights through training, maps of scores and of exact effects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from ihlab.plots.head_map import DRAWN, shown_scores
from ihlab.plots.heads import SHIFT_COLORS, SHIFT_TOKENS, require_shift
from ihlab.plots.interactive.base import DASHES, FOOT, TITLE, escaped, lay_out, panels_of, switch
from ihlab.plots.style import LINES, ORANGE
from tasks.config import require

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
LEGIBLE = 24
"""Maximum number of tokens for which a pattern's axes name each one. In longer patterns only hover names them."""


def attention_patterns(
    patterns: Float[np.ndarray, "step layer head query key"],
    tokens: Sequence[int | str],
    steps: Sequence[int],
    title: str = "Attention patterns",
) -> go.Figure:
    """Draw every head's pattern on one sequence, with a slider over checkpoints: hover names both tokens.

    The last checkpoint is shown first. A pattern takes 5.3 bytes per weight; weights are rounded to three decimals.
    Blue is positive attention, red negative. Raises `ConfigError` if steps or tokens do not fit the patterns.
    """
    n_steps, n_layers, n_heads, n_queries, _ = patterns.shape
    require(len(steps) == n_steps, f"There are {len(steps)} steps, but patterns of {n_steps} checkpoints.")
    require(len(tokens) == n_queries, f"There are {len(tokens)} tokens, but patterns of {n_queries} positions.")
    names = [f"{escaped(token)}{str(place).translate(SUBSCRIPTS)}" for place, token in enumerate(tokens)]
    titles = [f"head {layer}.{head}" for layer, head in np.ndindex(n_layers, n_heads)]
    figure = panels_of(n_layers, n_heads, 0.14 / n_layers, titles, shared_xaxes=True)
    groups: dict[str, list[int]] = {}
    for step, of_step in zip(steps, np.round(patterns, 3).astype(np.float32), strict=True):
        for layer, head in np.ndindex(n_layers, n_heads):
            groups.setdefault(str(step), []).append(len(figure.data))
            figure.add_heatmap(
                z=of_step[layer, head],
                coloraxis="coloraxis",
                row=layer + 1,
                col=head + 1,
                hovertemplate=f"head {layer}.{head}<br>query %{{y}}<br>key %{{x}}<br>attention %{{z:.3f}}"
                "<extra></extra>",
            )
    signed = bool((patterns < 0).any())
    colours = {"colorscale": "RdBu" if signed else "Blues", "cmin": -1 if signed else 0, "cmax": 1}
    figure.update_layout(coloraxis={**colours, "colorbar": {"title": "attention", "thickness": 12}})
    ticks = {"tickvals": list(range(len(names))), "ticktext": names, "tickfont": {"size": 11}, "showgrid": False}
    figure.update_xaxes(**ticks, tickangle=-90).update_yaxes(**ticks, autorange="reversed")
    figure.update_xaxes(title_text="key", row=n_layers).update_yaxes(title_text="query", col=1)
    if len(names) * n_heads > 2 * LEGIBLE:
        figure.update_xaxes(showticklabels=False, ticks="")
    if len(names) > LEGIBLE:
        figure.update_yaxes(showticklabels=False, ticks="")
    lay_out(figure, title, TITLE + FOOT + 40 + n_layers * max(190, min(420, 760 // n_heads)))
    switch(figure, groups, "slider", "training step ")
    return figure


def shift_weights(metrics: pd.DataFrame, title: str = "Shift weights over training") -> go.Figure:
    """Draw alpha and beta of every key/value head over training: hover names the weight, the step and the value.

    `metrics` is that of a run with a shift and has the columns step, alpha1_L.G ..., beta1_L.G ..., or only one kind.
    Raises `ConfigError` if it has neither.
    """
    require_shift(metrics)
    weights = metrics.melt("step", list(metrics.filter(regex=r"^(alpha|beta)\d+_")), "column", "weight")
    parts = weights["column"].str.extract(r"^(?P<kind>alpha|beta)(?P<back>\d+)_(?P<layer>\d+)\.(?P<group>\d+)$")
    weights = weights.join(parts.astype({"back": int, "layer": int, "group": int}))
    n_layers, n_groups = (1 + int(weights[name].max()) for name in ("layer", "group"))
    titles = [f"key/value head {layer}.{group}" for layer, group in np.ndindex(n_layers, n_groups)]
    figure = panels_of(n_layers, n_groups, 0.2 / n_layers, titles, shared_xaxes=True)
    named: set[str] = set()
    each: Any = weights.groupby(["kind", "back", "layer", "group"])
    for (kind, back, layer, group), curve in each:
        color, shifted = SHIFT_COLORS[kind]
        token = SHIFT_TOKENS[back - 1] if back <= len(SHIFT_TOKENS) else f"{back - 1} tokens before"
        name = f"{ {'alpha': 'α', 'beta': 'β'}[kind] }<sub>{back}</sub> {shifted}, {token}"
        figure.add_scatter(
            x=curve["step"].to_numpy(),
            y=curve["weight"].to_numpy(dtype=np.float32),
            mode="lines",
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
    figure.update_xaxes(title_text="training step", row=n_layers).update_yaxes(title_text="weight", col=1)
    return lay_out(figure, title, TITLE + FOOT + 210 * n_layers)


def head_map(scores: pd.DataFrame, columns: Sequence[str] = DRAWN, title: str = "Scores of heads") -> go.Figure:
    """Draw scores of every head, a map of layers and heads for each column: hover names the head and its score.

    `scores` and `columns` are those of `ihlab.plots.head_map.head_map`; induction heads have an orange frame. Raises
    `ConfigError` if the table has none of the columns.
    """
    scores, shown = shown_scores(scores, columns)
    maps = {name: scores.pivot_table(index="layer", columns="head", values=name, dropna=False) for name in shown}
    figure = _maps(maps, "head", "layer", "head %{y}.%{x}", shared=False)
    if "induction" in scores:
        for x, y in scores.loc[scores["induction"], ["head", "layer"]].to_numpy(dtype=float):
            for number in range(1, len(shown) + 1):
                frame = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
                figure.add_shape(type="rect", **frame, col=number, row=1, line={"color": ORANGE, "width": 3})
    return lay_out(figure, title, figure.layout.height)


def effects(table: pd.DataFrame, *estimates: str, title: str = "Exact effects") -> go.Figure:
    """Draw the exact effect of every head, input of a head, or edge, beside the estimates of attribution methods.

    `table` is that of `ihlab.attribution.exact`, with a further column for each of `estimates`. All maps share one
    colour scale: blue raises the metric, red lowers it. Hover names the node and the number.
    """
    edges, inputs = "from_layer" in table, "input" in table
    rows = ("from_layer", "from_head") if edges else ("layer",)
    columns = (*(("to_layer", "to_head") if edges else ("head",)), *(("input",) if inputs else ()))
    words = table.assign(row=_node(table, rows), column=_node(table, columns), **{"exact effect": table["effect"]})
    order = {each: list(dict.fromkeys(words[each])) for each in ("row", "column")}
    maps = {
        name: words.pivot_table(name, "row", "column").reindex(order["row"], columns=order["column"])
        for name in ("exact effect", *estimates)
    }
    if edges:
        figure = _maps(maps, "to an input of head", "from head", "head %{y} to %{x}", shared=True)
    else:
        what = "head and input" if inputs else "head"
        figure = _maps(maps, what, "layer", "head %{y}.%{x}", shared=True)
    return lay_out(figure, title, figure.layout.height)


def _node(table: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Return the names of nodes: "1.0 q" of a layer, a head and an input."""
    parts = [table[column].astype(str) for column in columns]
    name = parts[0]
    for column, text in zip(columns[1:], parts[1:], strict=True):
        name = name + (" " if column == "input" else ".") + text
    return name


def _maps(maps: dict[str, pd.DataFrame], x: str, y: str, node: str, shared: bool) -> go.Figure:
    """Draw maps beside each other, with one colour scale for all maps if `shared`, else one for each map."""
    largest = {name: float(np.nanmax(np.abs(grid.to_numpy(dtype=float)), initial=1e-9)) for name, grid in maps.items()}
    if shared:
        largest = dict.fromkeys(maps, max(largest.values()))
    spacing = 0.03 if shared else 0.16
    figure = make_subplots(
        1,
        len(maps),
        shared_yaxes=True,
        horizontal_spacing=spacing / max(1, len(maps) - 1),
        subplot_titles=list(map(escaped, maps)),
    )
    width = (1 - spacing * (len(maps) > 1)) / len(maps)
    for number, (name, grid) in enumerate(maps.items()):
        values = grid.to_numpy(dtype=np.float32)
        signed = shared or bool((values < 0).any())
        most = largest[name] if shared or name == "loss_rise" else max(1.0, largest[name])
        right = (number + 1) * width + number * spacing / max(1, len(maps) - 1)
        figure.add_heatmap(
            x=[str(each) for each in grid.columns],
            y=[str(each) for each in grid.index],
            z=values,
            name=name,
            xgap=1,
            ygap=1,
            colorscale="RdBu" if signed else "Blues",
            zmin=-most if signed else 0,
            zmax=most,
            hovertemplate=f"{node}<br>{escaped(name)} %{{z:.3f}}<extra></extra>",
            hoverongaps=False,
            colorbar={"x": right, "thickness": 10, "xpad": 4},
            showscale=not shared or number == len(maps) - 1,
            row=1,
            col=number + 1,
        )
    figure.update_xaxes(title_text=x, type="category", showgrid=False)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False).update_yaxes(title_text=y, col=1)
    rows = max(len(grid) for grid in maps.values())
    return figure.update_layout(height=TITLE + FOOT + min(700, max(150, 34 * rows)), plot_bgcolor="#DDDDDD")
