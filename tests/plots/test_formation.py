"""Medians and gaps are the table's."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.curves import Mark
from ihlab.plots.formation import Gap, gaps, legend_keys, medians

STYLES = {"one": Mark("#000000", "o"), "two": Mark("#111111", "s", "--")}


def test_medians_are_of_each_seeds_own_way():
    rows = [("one", seed, step, seed + (1 + seed) * step) for seed in range(3) for step in (0, 1, 4)]
    table = pd.DataFrame(rows, columns=["series", "seed", "step", "value"])
    raw, own = Figure().subplots(1, 2)
    medians(raw, table, STYLES, rise=False)
    medians(own, table, STYLES, rise=True)
    assert np.asarray(raw.get_lines()[0].get_xydata()).tolist() == [[0, 1], [1, 3], [4, 9]]
    assert np.asarray(own.get_lines()[0].get_xydata()).tolist() == [[0, 0], [1, 0.25], [4, 1]]


def test_every_seed_is_a_dot_and_the_unknown_are_counted():
    axes = Figure().subplots()
    gaps(axes, [Gap("a", [1.0, 1.0, 2.0], 1.0, 1.0, 2.0), Gap("b", [3.0, math.nan], 3.0, -math.inf, math.inf)], 1.25)
    dots = [x for line in axes.get_lines() if line.get_marker() == "o" for x in line.get_xdata()]
    middles = [x for line in axes.get_lines() if line.get_marker() == "D" for x in np.ravel(line.get_xdata())]
    assert dots == [1.0, 1.0, 2.0, 3.0]
    assert middles == [1.0]
    assert [text.get_text() for text in axes.texts] == ["1 of 2 not known"]


def test_the_legend_shows_colour_symbol_and_dashes():
    keys = legend_keys(STYLES)
    assert [(key.get_label(), key.get_marker(), key.get_linestyle()) for key in keys] == [
        ("one", "o", "-"),
        ("two", "s", "--"),
    ]
