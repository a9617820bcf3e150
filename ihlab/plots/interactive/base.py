"""Common style of interactive figures, and switches between groups of traces."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from ihlab.plots.style import COLORS, LINES
from ihlab.storage.files import write_text

WIDTH = 880
"""Width in pixels for which pictures are laid out. In a page they take the width of the window."""
TITLE, FOOT = 92, 108
"""Pixels above the axes, for title and buttons, and below them, for names and legend."""
DASHES = dict(zip(LINES, ("solid", "dash", "dashdot", "dot"), strict=True))
"""plotly's names of matplotlib's dashes."""
_AXIS = {
    "gridcolor": "#E6E6E6",
    "linecolor": "#777777",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 12},
}
_TEMPLATE = go.layout.Template(
    layout={
        "colorway": COLORS,
        "font": {"family": "sans-serif", "size": 13, "color": "#222222"},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {"align": "left", "bgcolor": "white", "font": {"color": "#222222"}},
    }
)  # plotly's own template adds 7 kB to every figure


def panels_of(
    down: int, across: int, gap: float, titles: Sequence[object] | None, shared_xaxes: bool = False
) -> go.Figure:
    """Return an empty figure of panels that share the y axes of a row. `gap`: the fraction of the height below each."""
    return make_subplots(
        down,
        across,
        shared_xaxes=shared_xaxes,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=gap,
        subplot_titles=None if titles is None else list(map(escaped, titles)),
    )


def lay_out(figure: go.Figure, title: str, height: float) -> go.Figure:
    """Give a figure its title, its height in pixels, the style and a legend below the axes. Return it."""
    return figure.update_layout(
        template=_TEMPLATE,
        title={
            "text": title.replace("\n", "<br>"),
            "x": 0.01,
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 12},
            "font": {"size": 16},
        },
        height=height,
        margin={"l": 70, "r": 20, "t": TITLE, "b": FOOT},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    )


def escaped(text: object) -> str:
    """Return a text escaped for plotly, so that special tokens such as <bos> are not read as HTML tags."""
    return html.escape(str(text), quote=False)


def switch(
    figure: go.Figure,
    groups: Mapping[str, Sequence[int]],
    kind: Literal["slider", "menu"],
    prefix: str = "",
    layouts: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Show one group of traces at a time, chosen with a slider or a menu; traces of no group stay visible.

    `groups` maps each group's name to the indices of its traces. The last group is shown first. `layouts` maps names to
    the changes of the layout when that group is shown.
    """
    in_groups = {trace for group in groups.values() for trace in group}
    steps: list[dict[str, Any]] = [
        {
            "label": name,
            "method": "update",
            "args": [
                {"visible": [trace in group or trace not in in_groups for trace in range(len(figure.data))]},
                (layouts or {}).get(name, {}),
            ],
        }
        for name, group in groups.items()
    ]
    last = len(steps) - 1
    for trace, visible in zip(figure.data, steps[last]["args"][0]["visible"], strict=True):
        trace.visible = visible
    if kind == "slider":
        current = {"prefix": prefix, "xanchor": "left", "font": {"size": 14}}
        figure.update_layout(sliders=[{"steps": steps, "active": last, "currentvalue": current, "pad": {"t": 48}}])
    else:
        menu = {"buttons": steps, "active": last, "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
        figure.update_layout(updatemenus=[{**menu, "pad": {"b": 4}}])


def write_page(figure: go.Figure, path: Path, plotlyjs: bool | str = True) -> None:
    """Write a figure as a page of its own that needs no network: the same figure gives the same file.

    `plotlyjs` is `include_plotlyjs` of plotly's `to_html`. With True the page holds the library, about 4.8 MB. With
    "directory" the pages of a folder share one `plotly.min.js`, which is written if it is missing.
    """
    title = html.escape(str(figure.layout.title.text).replace("<br>", " "))
    division = figure.to_html(
        include_plotlyjs=plotlyjs, full_html=False, div_id="picture", config={"responsive": True, "displaylogo": False}
    )
    library = path.parent / "plotly.min.js"
    if plotlyjs == "directory" and not library.exists():
        write_text(library, get_plotlyjs())
    write_text(
        path,
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        f'<body><main role="figure" aria-label="{title}">{division}</main></body>\n</html>\n',
    )
