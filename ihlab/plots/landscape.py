"""Draw the loss of Theorem 3.4 over the square of alpha1 and beta1: contours, streamlines and
paths.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from ihlab.plots.grids import grid
from ihlab.plots.style import BLACK, BLUE, ORANGE, RED, printed


@printed
def loss_field(axes: Axes, field: pd.DataFrame, spacing: float = 0.05, faint: bool = False) -> None:
    """Draw contours every `spacing` nats and the direction of descent; the star is the induction
    corner (0, 1).

    `field` has a row for each point of a full grid: alpha1, beta1, loss, slope_alpha1, slope_beta1.
    """
    alpha1, beta1, loss = _grid(field, "loss")
    right, up = (-_grid(field, name)[2] for name in ("slope_alpha1", "slope_beta1"))
    levels = np.arange(np.floor(loss.min() / spacing), np.ceil(loss.max() / spacing) + 1) * spacing
    strength = 0.35 if faint else 1.0
    axes.contour(alpha1, beta1, loss, levels=levels, colors=BLACK, linewidths=0.8, alpha=strength)
    lines = axes.streamplot(
        alpha1,
        beta1,
        right,
        up,
        color=BLUE,
        linewidth=0.9,
        arrowsize=0.9,
        density=0.8,
        broken_streamlines=True,
    )
    lines.lines.set_alpha(0.75 * strength)
    lines.arrows.set_alpha(0.75 * strength)
    axes.plot(0, 1, marker="*", color=RED, markersize=13, clip_on=False, zorder=5)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.grid(visible=False)


def _grid(field: pd.DataFrame, value: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = grid(field, "beta1", "alpha1", value)
    # streamplot needs even spacing to the last bit, which stored decimals do not have
    columns, rows = (
        np.linspace(float(axis[0]), float(axis[-1]), len(axis))
        for axis in (table.columns, table.index)
    )
    return columns, rows, table.to_numpy()


@printed
def paths(axes: Axes, table: pd.DataFrame, color: str, label: str, dashes: str = "-") -> None:
    """Draw paths in the square, each from a dot at its start. `table` has path, step, alpha1 and
    beta1.
    """
    for number, (_, path) in enumerate(table.groupby("path", sort=False)):
        name = label if number == 0 else None
        axes.plot(
            path["alpha1"], path["beta1"], color=color, ls=dashes, lw=1.2, label=name, zorder=3
        )
        axes.plot(
            path["alpha1"].iloc[0],
            path["beta1"].iloc[0],
            "o",
            color=color,
            markersize=3.5,
            zorder=4,
        )


@printed
def basin_map(axes: Axes, table: pd.DataFrame, fastest: float, slowest: float) -> AxesImage:
    """Draw the solution that each start reaches: induction shaded by its time, later is darker;
    others in orange.

    `table` comes from `landscape.basins`: alpha1, beta1, basin and decided on a full grid. The
    shades run from `fastest` to `slowest`, on a log scale, so that maps can share a colour bar.
    Returns the image for the colour bar.
    """
    times = table.assign(decided=np.log10(table["decided"].where(table["basin"] == "induction")))
    decided = _grid(times, "decided")[2]
    axes.set_facecolor(ORANGE)
    limits = {"vmin": np.log10(fastest), "vmax": np.log10(slowest)}
    image = axes.imshow(
        np.ma.masked_invalid(decided), origin="lower", extent=(0, 1, 0, 1), cmap="Blues", **limits
    )
    axes.plot(0, 1, marker="*", color=RED, markersize=13, clip_on=False, zorder=5)
    axes.set(
        xlabel=r"$\alpha_1$ at the start",
        ylabel=r"$\beta_1$ at the start",
        xticks=(0, 0.5, 1),
        yticks=(0, 0.5, 1),
    )
    axes.grid(visible=False)
    return image
