"""The map of starts as drawn: squares for what finds induction, crosses for the rest."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ihlab.paper.plots.basin import end_map, start_map

RUNS = pd.DataFrame(
    {
        "alpha1": [0.0, 1.0, 0.5],
        "beta1": [1.0, -0.5, 0.5],
        "end_key_angle": [0.1, 1.5, -0.2],
        "end_value_angle": [0.0, -1.4, 0.6],
        "steps": [100.0, np.inf, 300.0],
    }
)


@pytest.fixture
def axes():
    return Figure().subplots()


def field(points=9):
    axis = np.linspace(-0.5, 1.5, points)
    alpha1, beta1 = (values.ravel() for values in np.meshgrid(axis, axis))
    loss = 0.02 * (alpha1**2 + (1 - beta1) ** 2)
    return pd.DataFrame(
        {"alpha1": alpha1, "beta1": beta1, "loss": loss, "slope_alpha1": alpha1, "slope_beta1": beta1 - 1}
    )


def drawn_points(drawn, axes):
    """The two scatters, of which `drawn` is the last: crosses and coloured points."""
    position = axes.collections.index(drawn)
    return [collection.get_offsets().tolist() for collection in axes.collections[position - 1 : position + 1]]


def test_a_start_is_coloured_by_its_steps_or_marked_as_never(axes):
    drawn = start_map(axes, RUNS, field(), 600.0)
    assert drawn_points(drawn, axes) == [[[1.0, -0.5]], [[0.0, 1.0], [0.5, 0.5]]]
    assert drawn.get_array().tolist() == [100.0, 300.0]
    assert drawn.get_clim() == (0.0, 600.0)
    assert axes.get_legend_handles_labels()[1] == ["not within 600 steps"]


def test_the_map_shows_the_whole_field_and_frames_the_square(axes):
    start_map(axes, RUNS, field(), 600.0)
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 1.5), (-0.5, 1.5))
    assert axes.get_xticks().tolist() == [-0.5, 0.0, 0.5, 1.0, 1.5]
    [frame] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert frame.get_bbox().bounds == (0, 0, 1, 1)


def test_ends_lie_at_their_angles_over_inductions_square(axes):
    drawn = end_map(axes, RUNS, 600.0)
    assert drawn_points(drawn, axes) == [[[1.5, -1.4]], [[0.1, 0.0], [-0.2, 0.6]]]
    [square] = axes.patches
    assert square.get_bbox().bounds == pytest.approx((-np.pi / 4, -np.pi / 4, np.pi / 2, np.pi / 2))
    assert axes.get_xticks()[[0, -1]].tolist() == pytest.approx([-np.pi / 2, np.pi / 2])


def test_a_map_on_which_nothing_is_found_has_crosses_only(axes):
    nothing = RUNS.assign(steps=np.inf)
    assert len(start_map(axes, nothing, field(), 600.0).get_offsets()) == 0
