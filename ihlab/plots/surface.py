"""The loss of Theorem 3.4 as a surface."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.style import new_figure, printed
from tasks.config import require


@printed
def still_surface(table: pd.DataFrame, by: str, title: str) -> Figure:
    """Draw the surfaces over alpha1 and beta1 of the first, the middle and the last value of `by`, side by side.

    `table` has alpha1, beta1, loss and `by`, with a full grid per value of `by`. All share the *width* of the vertical
    range, so that a flat surface looks flat; the range itself follows the loss. Raises `ConfigError` for an empty
    table.
    """
    require(len(table) > 0, "There is no surface in an empty table.")
    grids: dict[object, pd.DataFrame] = {
        value: part.pivot_table(index="beta1", columns="alpha1", values="loss") for value, part in table.groupby(by)
    }
    height = max(float(np.ptp(grid.to_numpy())) for grid in grids.values())
    chosen = list(dict.fromkeys((0, (len(grids) - 1) // 2, len(grids) - 1)))
    figure = new_figure(3.6 * len(chosen), 3.6)
    for place, number in enumerate(chosen):
        value, grid = list(grids.items())[number]
        axes = figure.add_subplot(1, len(chosen), place + 1, projection="3d")
        alpha1, beta1 = np.meshgrid(grid.columns, grid.index)
        axes.plot_surface(alpha1, beta1, grid.to_numpy(), cmap="cividis", linewidth=0)
        top = float(grid.to_numpy().max())
        axes.set(title=f"{by} = {value}", xlabel=r"$\alpha_1$", ylabel=r"$\beta_1$", zlabel="loss")
        axes.set(zlim=(top - height, top))
        axes.view_init(elev=25, azim=-47)
    figure.suptitle(title)
    return figure
