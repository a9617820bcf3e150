"""The drawn counts and heads are the table's."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.paper.plots.quadrants import corners, quadrants
from ihlab.plots.curves import Mark


def test_every_count_stands_in_its_cell():
    axes = Figure().subplots()
    quadrants(axes, np.array([[50, 17], [9, 52]]), ["left", "right"], ["top", "bottom"], "Table 5")
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "50",
        (1, 0): "17",
        (0, 1): "9",
        (1, 1): "52",
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["left", "right"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["top", "bottom"]


def test_counts_of_no_heads_can_be_drawn():
    quadrants(Figure().subplots(), np.zeros((2, 2), dtype=int), ["a", "b"], ["c", "d"], "nothing")


def test_each_head_has_its_marker_and_counts_in_its_quarter():
    heads = pd.DataFrame({"curve": ["a", "b", "a"], "key": [0.1, 0.9, 0.5], "value": [0.9, 0.2, 0.7]})
    axes = Figure().subplots()
    corners(axes, heads, {"a": Mark("#000000", "o"), "b": Mark("#111111", "s")})
    assert [points.get_offsets().tolist() for points in axes.collections] == [[[0.1, 0.9], [0.5, 0.7]], [[0.9, 0.2]]]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0.25, 0.75): "2",
        (0.75, 0.75): "0",
        (0.25, 0.25): "0",
        (0.75, 0.25): "1",
    }
