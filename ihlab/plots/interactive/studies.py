"""Draw the declared views of studies as interactive figures."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.interactive.curves import curves
from ihlab.plots.interactive.dots import Claims, dots
from ihlab.plots.views import Curves, Dots
from tasks.config import require


def view(declared: Any, data: pd.DataFrame, title: str, claims: Claims | None = None) -> go.Figure:
    """Draw a declared `Dots` or `Curves` as an interactive figure. Raises `ConfigError` for any
    other view.
    """
    require(
        isinstance(declared, Dots | Curves),
        f"'{title}' has no interactive picture: its view is neither Dots nor Curves of ihlab.plots.views.",
    )
    of = declared
    if isinstance(of, Curves):
        return curves(
            data, of.x, of.y, of.colors, of.panels, title=title, xlabel=of.xlabel, ylabel=of.ylabel
        )
    return dots(
        data, of.rows, of.x, of.panels, of.colors, claims, of.lines, of.log, title, of.xlabel
    )
