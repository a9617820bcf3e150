"""Medians and gaps are the table's."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.curves import Mark
from ihlab.plots.formation import Gap, gaps, legend_keys, medians, timeline

STYLES = {"one": Mark("#000000", "o"), "two": Mark("#111111", "s", "--")}


def test_the_line_is_the_median_and_the_band_half_of_the_seeds():
    rows = [("one", seed, step, seed + (1 + seed) * step) for seed in range(5) for step in (0, 1, 4)]
    axes = Figure().subplots()
    medians(axes, pd.DataFrame(rows, columns=["series", "seed", "step", "value"]), STYLES)
    assert np.asarray(axes.get_lines()[0].get_xydata()).tolist() == [[0, 2], [1, 5], [4, 14]]
    band = axes.collections[0].get_paths()[0].vertices
    assert {tuple(corner) for corner in band.tolist()} == {(0, 1), (1, 3), (4, 9), (0, 3), (1, 7), (4, 19)}


def test_a_timeline_goes_from_the_median_start_to_the_median_middle():
    starts = pd.DataFrame({"one": [1.0, 2.0, 9.0], "two": [3.0, math.nan, 5.0]})
    axes = Figure().subplots()
    timeline(axes, starts, starts + 10, STYLES, {"one": "first", "two": "second"})
    bars = [line.get_xdata().tolist() for line in axes.get_lines() if line.get_marker() == "None"]
    assert bars == [[2, 12], [4, 14]]
    seeds = [line for line in axes.get_lines() if line.get_markersize() == 3.5]
    assert [line.get_xdata().tolist() for line in seeds] == [[1, 2, 9], [11, 12, 19], [3, 5], [13, 15]]
    assert [line.get_markerfacecolor() for line in seeds] == ["white", "#000000", "white", "#111111"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]


def test_a_series_that_never_rises_has_an_empty_row():
    times = pd.DataFrame({"one": [math.nan], "two": [4.0]})
    axes = Figure().subplots()
    timeline(axes, times, times, STYLES, {"one": "first", "two": "second"})
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]


def test_gaps_with_one_label_share_a_line_and_the_unknown_says_so():
    axes = Figure().subplots()
    unknown = Gap("b", 3.0, -math.inf, math.inf)
    gaps(axes, [Gap("a", 1.0, 0.5, 2.0, hollow=True), Gap("a", 4.0, 3.0, 5.0), unknown], 1.25)
    marks = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert [np.ravel(line.get_xydata()).tolist() for line in marks] == [[1.0, -0.15], [4.0, 0.15]]
    assert [line.get_markerfacecolor() for line in marks] == ["white", "#000000"]
    assert [text.get_text() for text in axes.texts] == ["not known"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_the_legend_shows_colour_symbol_and_dashes():
    keys = legend_keys(STYLES, {"one": "first", "two": "second"})
    assert [(key.get_label(), key.get_marker(), key.get_linestyle()) for key in keys] == [
        ("first", "o", "-"),
        ("second", "s", "--"),
    ]
