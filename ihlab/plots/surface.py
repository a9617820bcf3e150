"""The loss of Theorem 3.4 as a surface: with a slider and rotation that need no kernel, or as a still picture."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from matplotlib.figure import Figure

from ihlab.plots.style import new_figure, printed
from tasks.config import require


def loss_surface(table: pd.DataFrame, by: str, title: str) -> go.Figure:
    """Draw a surface over alpha1 and beta1, with one slider step per value of the column `by`.

    `table` has alpha1, beta1, loss and `by`, with a full grid per value of `by`. All steps share the *width* of the
    vertical range, so that a flat surface looks flat; the range itself follows the loss. Raises `ConfigError` for
    an empty table.
    """
    grids, ranges = _grids(table, by)
    surfaces = [
        go.Surface(
            x=grid.columns, y=grid.index, z=grid.to_numpy(), colorscale="Cividis", visible=number == 0,
            colorbar={"title": "loss, nats"}, contours={"z": {"show": True, "size": 0.05, "color": "black"}},
            hovertemplate="α₁ %{x:.2f}<br>β₁ %{y:.2f}<br>loss %{z:.3f}<extra></extra>",
        )
        for number, grid in enumerate(grids.values())
    ]  # fmt: skip
    steps = [
        {
            "method": "update",
            "label": str(value),
            "args": [{"visible": [other == value for other in grids]}, {"scene.zaxis.range": extent}],
        }
        for value, extent in zip(grids, ranges, strict=True)
    ]
    figure = go.Figure(surfaces)
    figure.update_layout(
        title=title,
        sliders=[{"pad": {"t": 20, "b": 30}, "currentvalue": {"prefix": f"{by} = "}, "steps": steps}],
        scene={
            "xaxis_title": "α₁",
            "yaxis_title": "β₁",
            "zaxis": {"title": "loss", "range": ranges[0]},
            "camera": {"eye": {"x": 1.65, "y": -1.75, "z": 0.9}},
        },
        width=760,
        height=660,
        margin={"l": 40, "r": 0, "t": 50, "b": 60},
    )
    return figure


@printed
def still_surface(table: pd.DataFrame, by: str, title: str) -> Figure:
    """Draw the first, the middle and the last surface of `loss_surface` side by side, on its vertical scales."""
    grids, ranges = _grids(table, by)
    chosen = dict.fromkeys((0, (len(grids) - 1) // 2, len(grids) - 1))
    figure = new_figure(3.6 * len(chosen), 3.6)
    for place, number in enumerate(chosen):
        value, grid = list(grids.items())[number]
        axes = figure.add_subplot(1, len(chosen), place + 1, projection="3d")
        alpha1, beta1 = np.meshgrid(grid.columns, grid.index)
        axes.plot_surface(alpha1, beta1, grid.to_numpy(), cmap="cividis", linewidth=0)
        axes.set(title=f"{by} = {value}", xlabel=r"$\alpha_1$", ylabel=r"$\beta_1$", zlabel="loss", zlim=ranges[number])
        axes.view_init(elev=25, azim=-47)
    figure.suptitle(title)
    return figure


def _grids(table: pd.DataFrame, by: str) -> tuple[dict[object, pd.DataFrame], list[list[float]]]:
    """Return the grid of losses for each value of `by`, and their vertical ranges, all of the same width."""
    require(len(table) > 0, "There is no surface in an empty table.")
    grids: dict[object, pd.DataFrame] = {
        value: part.pivot_table(index="beta1", columns="alpha1", values="loss") for value, part in table.groupby(by)
    }
    height = max(float(grid.to_numpy().max() - grid.to_numpy().min()) for grid in grids.values())
    return grids, [[float(grid.to_numpy().max()) - height, float(grid.to_numpy().max())] for grid in grids.values()]
