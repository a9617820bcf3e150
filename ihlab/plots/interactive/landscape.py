"""Draw the loss of Theorem 3.4 as a rotatable surface with descent and models' paths on it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.interpolate import RegularGridInterpolator

from ihlab.plots.curves import Line
from ihlab.plots.grids import grid
from ihlab.plots.interactive.base import DASHES, escaped, lay_out, switch
from ihlab.plots.style import BLUE, RED
from ihlab.plots.views import default_lines
from tasks.config import require

STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Values of alpha1, and of beta1, from which descent is drawn, as fractions of the surface's sides.
"""
CORNER_IN_FRONT = {"x": -1.1, "y": 1.45, "z": 0.9}
"""Place from which a surface is seen at first: the induction corner (0, 1) is nearest."""
STRIDE, STRIDES = 0.02, 200
"""Length of a streamline's steps, as a fraction of the surface's side, and their maximum number."""


def loss_surface(
    surfaces: Mapping[str, pd.DataFrame],
    paths: Mapping[str, pd.DataFrame] | None = None,
    lines: Mapping[str, Line] | None = None,
    title: str = "The loss of Theorem 3.4",
) -> go.Figure:
    """Draw the loss over alpha1 and beta1 as a rotatable surface, with streamlines of descent and
    paths on it.

    - `surfaces`: tables of `ihlab.theory.landscape.Field.table`, keyed by names like "exact, T =
      5". A menu shows one at a time, the last one first;
    - `paths`: tables of paths, keyed by the name of their surface. Columns: path, alpha1, beta1
      and, for several kinds, series; a click on the legend hides one;
    - `lines`: the style of each series.

    All surfaces have the same height of the vertical axis, so that a flat one looks flat. Raises
    `ConfigError` if there is no surface, and for paths on a surface that is not there.
    """
    paths = paths or {}
    require(len(surfaces) > 0, "There is no surface to draw.")
    for name in paths:
        require(
            name in surfaces,
            f"There are paths on '{name}', but the surfaces are {', '.join(surfaces)}.",
        )
    figure, groups, layouts = go.Figure(), {}, {}
    height = max(float(np.ptp(table["loss"])) for table in surfaces.values())
    for name, table in surfaces.items():
        _require_grid(name, table)
        first, top = len(figure.data), float(table["loss"].max())
        _surface(figure, table)
        if name in paths:
            _paths(figure, table, paths[name], lines)
        groups[name] = range(first, len(figure.data))
        seen = [top - 1.02 * height, top + 0.02 * height]
        layouts[name] = {"scene.zaxis.range": seen}
    figure.update_layout(
        scene={
            "xaxis": {"title": {"text": "α₁"}},
            "yaxis": {"title": {"text": "β₁"}},
            "zaxis": {"title": {"text": "loss"}, "range": seen},
            "aspectratio": {"x": 1, "y": 1, "z": 0.7},
            "camera": {"eye": CORNER_IN_FRONT, "center": {"z": -0.12}},
        }
    )
    lay_out(figure, title, 440)
    figure.update_layout(margin={"l": 10, "r": 10, "b": 60})
    if len(groups) > 1:
        switch(figure, groups, "menu", layouts=layouts)
    return figure


def _require_grid(name: str, table: pd.DataFrame) -> None:
    """Raise `ConfigError` unless a surface has a loss at each point of a grid."""
    sides = [table[axis].nunique() for axis in ("alpha1", "beta1")]
    n_points = int(table["loss"].notna().sum())
    require(
        min(sides) >= 2 and n_points == len(table) == sides[0] * sides[1],
        f"The surface '{name}' has {n_points} losses on a grid of {sides[0]} x {sides[1]}, but must have one at each "
        "point, and at least 2 x 2.",
    )


def _surface(figure: go.Figure, table: pd.DataFrame) -> None:
    """Draw one surface, its streamlines and the induction corner."""
    losses = grid(table, "beta1", "alpha1", "loss")
    figure.add_surface(
        x=losses.columns.to_numpy(dtype=np.float32),
        y=losses.index.to_numpy(dtype=np.float32),
        z=losses.to_numpy(dtype=np.float32),
        colorscale="Cividis",
        showscale=False,
        opacity=0.9,
        contours={"z": {"show": True, "usecolormap": False, "color": "#FFFFFF", "width": 1}},
        hovertemplate="α₁ %{x:.3f}, β₁ %{y:.3f}<br>loss %{z:.4f}<extra></extra>",
    )
    xyz = _descents(table)
    figure.add_scatter3d(
        **_on(table, xyz),
        mode="lines",
        line={"color": BLUE, "width": 4},
        name="descent",
        hoverinfo="skip",
    )
    figure.add_scatter3d(
        **_on(table, np.array([[0.0, 1.0]])),
        mode="markers",
        marker={"color": RED, "size": 7, "symbol": "diamond"},
        name="induction head (0, 1)",
        hovertemplate="induction head (0, 1)<extra></extra>",
    )


def _descents(table: pd.DataFrame) -> np.ndarray:
    """Return streamlines of descent [point, 2] inside the surface, with a row of NaN after each."""
    slopes = _over(table, ["slope_alpha1", "slope_beta1"])
    low, high = float(table["alpha1"].min()), float(table["alpha1"].max())
    side, starts = high - low, low + (high - low) * np.array(STARTS)
    points = np.stack(np.meshgrid(starts, starts), axis=-1).reshape(-1, 2)
    visited = [points]
    for _ in range(STRIDES):
        slope = slopes(points)
        length = np.linalg.norm(slope, axis=1, keepdims=True)
        points = np.clip(points - STRIDE * side * slope / np.maximum(length, 1e-12), low, high)
        visited.append(points)
    lines = []
    for line in np.stack(visited, axis=1)[:, ::2]:
        moved = np.linalg.norm(np.diff(line, axis=0), axis=1) > STRIDE * side / 2
        arrived = (
            len(moved) - int(moved[::-1].argmax()) if moved.any() else 0
        )  # from there on it oscillates
        lines += [line[: arrived + 1], np.full((1, 2), np.nan)]
    return np.concatenate(lines)


def _paths(
    figure: go.Figure, table: pd.DataFrame, walked: pd.DataFrame, lines: Mapping[str, Line] | None
) -> None:
    """Draw paths on a surface, a trace for each."""
    if "series" not in walked:
        walked = walked.assign(series="path")
    # The first colour is that of descent.
    lines = lines or default_lines(["descent", *walked["series"].unique()])
    named: set[str] = set()
    each: Any = walked.groupby(["series", "path"], sort=False)
    for (name, path), points in each:
        step, said = {}, ""
        if "step" in points:
            step, said = {"customdata": points["step"].to_numpy()}, "step %{customdata}<br>"
        figure.add_scatter3d(
            **_on(table, points[["alpha1", "beta1"]].to_numpy(dtype=float)),
            **step,
            mode="lines+markers",
            line={"color": lines[name].color, "width": 5, "dash": DASHES[lines[name].dashes]},
            marker={"color": lines[name].color, "size": [5] + [1.5] * (len(points) - 1)},
            name=escaped(name),
            legendgroup=name,
            showlegend=name not in named,
            hovertemplate=f"{escaped(path)}: {escaped(name)}<br>{said}α₁ %{{x:.3f}}, β₁ %{{y:.3f}}<extra></extra>",
        )
        named.add(name)


def _on(table: pd.DataFrame, points: np.ndarray) -> dict[str, np.ndarray]:
    """Return points (alpha1, beta1) as coordinates on the surface, lifted a little so that it does
    not hide them.
    """
    height = _over(table, ["loss"])(points)[:, 0] + 0.01 * float(np.ptp(table["loss"]))
    return dict(zip("xyz", np.column_stack([points, height]).T.astype(np.float32), strict=True))


def _over(table: pd.DataFrame, columns: list[str]) -> RegularGridInterpolator:
    """Return a linear interpolation of columns of a full grid. It extrapolates, as stored decimals
    miss its edges.
    """
    by = table.sort_values(["alpha1", "beta1"])
    axes = [np.unique(by[name]) for name in ("alpha1", "beta1")]
    return RegularGridInterpolator(
        axes,
        by[columns].to_numpy().reshape(*map(len, axes), len(columns)),
        bounds_error=False,
        fill_value=None,
    )
