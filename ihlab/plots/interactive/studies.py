"""Draw the declared views of studies as interactive figures."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.interactive.curves import curves
from ihlab.plots.interactive.dots import dots
from ihlab.plots.views import Curves, Dots
from tasks.config import require


def view(declared: Any, data: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw a declared `Dots` or `Curves` as an interactive figure.

    Raises `ConfigError` for any other view.
    """
    if isinstance(declared, Dots):
        return dots(declared, data, title)
    require(
        isinstance(declared, Curves),
        f"'{title}' has no interactive picture: its view is neither Dots nor Curves of ihlab.plots.views.",
    )
    fields = {name: getattr(declared, name) for name in ("panels", "xlabel", "ylabel")}
    return curves(data, declared.x, declared.y, declared.colors, title=title, **fields)
