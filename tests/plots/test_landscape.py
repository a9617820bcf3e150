"""The square as drawn: full grids, the corner marked, paths where they were."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.landscape import basin_map, loss_field, paths


def bowl(points=7):
    """A loss whose lowest point is the corner (0, 1)."""
    alpha1, beta1 = (
        axis.ravel() for axis in np.meshgrid(np.linspace(0, 1, points), np.linspace(0, 1, points))
    )
    slopes = {"slope_alpha1": 2 * alpha1, "slope_beta1": -2 * (1 - beta1)}
    return pd.DataFrame(
        {"alpha1": alpha1, "beta1": beta1, "loss": alpha1**2 + (1 - beta1) ** 2, **slopes}
    )


def test_contours_are_where_the_loss_is_their_level():
    axes = Figure().subplots()
    loss_field(axes, bowl(41), spacing=0.25)
    assert [line.get_xydata().tolist() for line in axes.get_lines()] == [[[0, 1]]]  # the corner
    contours = axes.collections[0]
    for level, path in zip(contours.levels, contours.get_paths(), strict=True):
        if len(path.vertices):
            alpha1, beta1 = path.vertices.T
            np.testing.assert_allclose(alpha1**2 + (1 - beta1) ** 2, level, atol=2e-3)


def test_streamlines_run_downhill():
    axes = Figure().subplots()
    loss_field(axes, bowl(41))
    for line in axes.collections[1].get_segments():
        losses = line[:, 0] ** 2 + (1 - line[:, 1]) ** 2
        assert np.all(np.diff(losses) <= 1e-9)


def test_each_path_has_a_line_and_a_dot_and_all_share_one_label():
    axes = Figure().subplots()
    table = pd.DataFrame(
        {"path": list("aabb"), "alpha1": [0.1, 0.2, 0.5, 0.6], "beta1": [0.3, 0.4, 0.7, 0.8]}
    )
    paths(axes, table, "#000000", "heads")
    drawn = [line.get_xydata().tolist() for line in axes.get_lines()]
    assert drawn == [[[0.1, 0.3], [0.2, 0.4]], [[0.1, 0.3]], [[0.5, 0.7], [0.6, 0.8]], [[0.5, 0.7]]]
    assert axes.get_legend_handles_labels()[1] == ["heads"]


def test_the_basin_map_shades_induction_by_time_and_leaves_the_rest_out():
    axes = Figure().subplots()
    table = pd.DataFrame(
        {
            "alpha1": [0.25, 0.75, 0.25, 0.75],
            "beta1": [0.25, 0.25, 0.75, 0.75],
            "basin": ["induction", "negative", "induction", "undecided"],
            "decided": [100.0, 70.0, 10.0, np.inf],
        }
    )
    shades = basin_map(axes, table, fastest=1.0, slowest=1000.0).get_array()
    assert shades.tolist() == [[2.0, None], [1.0, None]]
