"""Views of a study's table: every seed is drawn once, at its value, in its row, panel and colour."""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab.plots.curves import learning_curves
from ihlab.plots.style import new_figure
from ihlab.plots.views import NEVER, curves, default_lines, dots
from tasks import ConfigError


def table(*rows):
    return pd.DataFrame(rows, columns=["variant", "setting", "seed", "steps_to_90", "best"])


DATA = table(
    ("A", "x", 0, 100.0, 0.9),
    ("A", "x", 1, math.inf, 0.1),
    ("B", "x", 0, 400.0, 0.8),
    ("B", "y", 0, 40.0, 0.7),
)


def drawn(axes):
    """The x and the row of each marker."""
    lines = [
        line
        for line in axes.get_lines()
        if line.get_marker() not in ("", "None") and len(line.get_xdata())
    ]
    return sorted(
        (float(x), round(float(y))) for line in lines for x, y in zip(*line.get_data(), strict=True)
    )


def test_one_dot_per_seed_in_rows_and_panels():
    one, two = dots("variant", panels="setting")(DATA).axes
    assert drawn(one) == [(100, 0), (400, 1), (NEVER * 400, 0)]
    assert drawn(two) == [(40, 1)]
    assert [axes.get_title() for axes in (one, two)] == ["x", "y"]
    assert [label.get_text() for label in one.get_yticklabels()] == ["A", "B"]
    assert one.get_xticklabels()[-1].get_text() == "never"
    assert one.get_ylim()[0] > one.get_ylim()[1], "the first row is on top"


@pytest.mark.parametrize(("steps", "bars"), [((10, 20, math.inf), [20]), ((10, math.inf), [])])
def test_a_bar_is_the_median_unless_most_seeds_never_get_there(steps, bars):
    rows = [("A", "x", seed, step, 0) for seed, step in enumerate(steps)]
    [axes] = dots("variant")(table(*rows)).axes
    assert axes.get_xticklabels()[-1].get_text() == "never"
    assert [each.get_segments()[0][0][0] for each in axes.collections] == bars


def test_several_columns_or_a_column_of_colours_share_a_row():
    [axes] = (figure := dots("variant", ("best", "seed"), lines=(0.5,), xlim=(0, 1))(DATA)).axes
    assert len(drawn(axes)) == 8
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["best", "seed"]
    assert axes.get_xlim() == (0, 1)
    figure = dots("variant", "best", colors="setting")(DATA)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]
    colors = {line.get_color() for line in figure.axes[0].get_lines() if len(line.get_xdata())}
    assert len(colors) == 2


def test_numbers_are_sorted_and_words_keep_their_order():
    data = DATA.assign(heads=[8, 8, 2, 2], variant=["Z", "Z", "A", "A"])
    for column, names in (("heads", ["2", "8"]), ("variant", ["Z", "A"])):
        [axes] = dots(column)(data).axes
        assert [label.get_text() for label in axes.get_yticklabels()] == names


STEPS = pd.DataFrame(
    [(curve, seed, step, value + seed) for curve, value in (("A", 1.0), ("B", 5.0)) for seed in range(3)
     for step in (0, 10, 20) if not (seed == 2 and step == 20)],
    columns=["curve", "seed", "step", "y"],
)  # fmt: skip


def test_curves_are_the_median_and_the_range_of_seeds_and_ended_seeds_go_on():
    [axes] = (figure := curves("step", "y", colors="curve", ylim=(0, 9))(STEPS)).axes
    a, b, *_ = axes.get_lines()
    assert np.array_equal(a.get_data(), [[0, 10, 20], [2, 2, 2]])
    assert b.get_ydata().tolist() == [6, 6, 6]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((1, 3))
    assert axes.get_ylim() == (0, 9)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A", "B"]


def test_a_curve_without_rows_is_left_out():
    axes = new_figure(3, 2).subplots()
    lines = default_lines(["A", "none"])
    learning_curves(axes, STEPS[STEPS["curve"] == "A"], "step", "y", lines)
    assert len(axes.get_lines()) == 1


def test_two_runs_of_one_seed_are_no_curve():
    with pytest.raises(
        ConfigError, match="The curve 'A' has two values of one seed at the same step"
    ):
        curves("step", "y", colors="curve")(STEPS.assign(curve="A"))


def test_each_seed_can_be_a_line():
    [axes] = curves("step", "y", colors="curve", each_seed=True)(STEPS).axes
    assert sum(len(line.get_xdata()) == 3 for line in axes.get_lines()) == 6
