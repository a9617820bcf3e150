"""The drawn counts and arrows are the table's."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.curves import Line
from ihlab.plots.quadrants import quadrants, trajectories


def test_every_count_stands_in_its_cell():
    axes = Figure().subplots()
    quadrants(axes, np.array([[50, 17], [9, 52]]), ["left", "right"], ["top", "bottom"], "Table 5")
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "50", (1, 0): "17", (0, 1): "9", (1, 1): "52"
    }  # fmt: skip
    assert [label.get_text() for label in axes.get_xticklabels()] == ["left", "right"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["top", "bottom"]


def test_counts_of_no_heads_can_be_drawn():
    quadrants(Figure().subplots(), np.zeros((2, 2), dtype=int), ["a", "b"], ["c", "d"], "nothing")


def test_each_head_is_an_arrow_from_start_to_end():
    start = pd.DataFrame({"curve": ["a", "b", "a"], "key": [0.1, 0.2, 0.3], "value": [0.9, 0.8, 0.7]})
    end = start.assign(key=[0.4, 0.5, 0.6], value=[0.0, 0.1, 0.2])
    axes = Figure().subplots()
    trajectories(axes, start, end, {"a": Line("#000000"), "b": Line("#111111")})
    arrows = [(text.xyann, text.xy) for text in axes.texts]
    assert arrows == [((0.1, 0.9), (0.4, 0.0)), ((0.3, 0.7), (0.6, 0.2)), ((0.2, 0.8), (0.5, 0.1))]
    tails, tips = axes.collections[0].get_offsets(), axes.collections[1].get_offsets()
    assert np.allclose(tails, [(0.1, 0.9), (0.3, 0.7)])
    assert np.allclose(tips, [(0.4, 0.0), (0.6, 0.2)])
