"""Common style of interactive figures, and switches between groups of traces."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from ihlab.plots.style import COLORS, LINES
from ihlab.storage.files import write_text

TITLE, FOOT = 92, 108
"""Pixels above the axes, for title and buttons, and below them, for names and legend."""
NARROW, LETTER, LINE = 520, 6.6, 15
"""Width of a small screen in pixels, at which titles of panels do not overlap; width and height of
their letters.
"""
LARGE_LETTER = 8.0
"""Width of a letter of an axis' title."""
ALONE = 280
"""Height in pixels of a row of panels that is the only one."""
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
    down: int,
    across: int,
    titles: Sequence[object],
    height: float = ALONE,
    below: float = 0,
    between: float = 0.03,
    shared_xaxes: bool = False,
) -> go.Figure:
    """Return an empty figure of panels that share the y axes of a row.

    `height`: pixels of a row of panels, of which `below` are below the axes, and some for the title
    of the next row.
    `between`: the fraction of the width between two panels.
    """
    in_lines = [broken(title, across) for title in titles]
    n_lines = max((title.count("<br>") + 1 for title in in_lines), default=0)
    return make_subplots(
        down,
        across,
        shared_xaxes=shared_xaxes,
        shared_yaxes=True,
        horizontal_spacing=between,
        vertical_spacing=(below + LINE * n_lines) / (down * height),
        subplot_titles=in_lines or None,
    )


def broken(title: object, across: int, letter: float = LETTER) -> str:
    """Return a title in lines that fit in one of `across` panels on a small screen. `letter`: the
    width of a letter.
    """
    most = (NARROW - 100) / across / letter
    lines = [""]
    for part in re.findall(
        r"[^\s_]*_?\s*", str(title)
    ):  # a line may end after a space or an underscore
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > most:
            lines.append("")
        lines[-1] += part
    return "<br>".join(escaped(line.strip()) for line in lines)


def title_height(figure: go.Figure) -> int:
    """Return the pixels of the titles above a row of panels."""
    return LINE * max(
        (str(note.text).count("<br>") + 1 for note in figure.layout.annotations), default=0
    )


def lay_out(figure: go.Figure, title: str, height: float) -> go.Figure:
    """Give a figure its title, the height in pixels of its panels, the style and a legend below.
    Return the figure.
    """
    top = TITLE + max(0, title_height(figure) - LINE)
    figure.update_annotations(font_size=12)
    heading = {"text": escaped(title).replace("\n", "<br>"), "font": {"size": 16}}
    return figure.update_layout(
        template=_TEMPLATE,
        title={**heading, "x": 0.01, "y": 1, "yanchor": "top", "pad": {"t": 12}},
        height=top + height + FOOT,
        margin={"l": 70, "r": 20, "t": top, "b": FOOT},
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
        },
    )


def escaped(text: object) -> str:
    """Return a text escaped for plotly, so that special tokens such as <bos> are not read as HTML
    tags.
    """
    return html.escape(str(text), quote=False)


def switch(
    figure: go.Figure,
    groups: Mapping[str, Sequence[int]],
    kind: Literal["slider", "menu"],
    prefix: str = "",
    layouts: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Show one group of traces at a time, chosen with a slider or a menu; traces of no group stay
    visible.

    `groups` maps each group's name to the indices of its traces. The last group is shown first.
    `layouts` maps names to the changes of the layout when that group is shown.
    """
    in_groups = set().union(*groups.values())
    steps: list[dict[str, Any]] = []
    for name, group in groups.items():
        visible = [trace in group or trace not in in_groups for trace in range(len(figure.data))]
        changed = (layouts or {}).get(name, {})
        steps.append({"label": name, "method": "update", "args": [{"visible": visible}, changed]})
    last = len(steps) - 1
    for trace, is_visible in zip(figure.data, steps[last]["args"][0]["visible"], strict=True):
        trace.visible = is_visible
    if kind == "slider":
        current = {"prefix": prefix, "xanchor": "left", "font": {"size": 14}}
        slider = {"steps": steps, "active": last, "currentvalue": current, "pad": {"t": 48}}
        figure.update_layout(sliders=[slider])
    else:
        menu = {
            "buttons": steps,
            "active": last,
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "bottom",
        }
        figure.update_layout(updatemenus=[{**menu, "pad": {"b": 4}}])


def write_page(figure: go.Figure, path: Path, plotlyjs: bool | str = True) -> None:
    """Write a figure as a page of its own that needs no network: the same figure gives the same
    file.

    `plotlyjs` is `include_plotlyjs` of plotly's `to_html`. With True the page holds the library,
    about 4.8 MB. With "directory" the pages of a folder share one `plotly.min.js`, which is written
    if it is missing.
    """
    text = html.unescape(str(figure.layout.title.text).replace("<br>", " "))
    title = html.escape(text)
    division = figure.to_html(
        include_plotlyjs=plotlyjs,
        full_html=False,
        div_id="picture",
        config={"responsive": True, "displaylogo": False},
    )
    library = path.parent / "plotly.min.js"
    if plotlyjs == "directory" and not library.exists():
        write_text(library, get_plotlyjs())
    write_text(
        path,
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(division)}"><title>{title}</title></head>\n'
        f'<body><main role="figure" aria-label="{title}">{division}</main></body>\n</html>\n',
    )


def _policy(division: str) -> str:
    """Return a content security policy that allows the scripts of plotly's HTML, a library beside
    the page, no load.

    It names the scripts by their SHA-256, so no text of a figure can run code. plotly compiles code
    of its own for some pictures, such as surfaces, and gives every figure its own styles.
    """
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", division, re.DOTALL)
    allowed = ""
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        allowed += f" 'sha256-{base64.b64encode(digest).decode()}'"
    return (
        f"default-src 'none'; script-src 'self' file: 'unsafe-eval'{allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'"
    )
