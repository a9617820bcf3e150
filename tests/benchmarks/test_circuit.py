"""The drawing of a circuit: true heads and paths, and nothing else, are marked."""

import pandas as pd
from circuit import INPUTS, circuits


def test_true_nodes_are_marked():
    heads = ["layer", "head", "effect", "reverse", "true"]
    found = {
        "swing": 10.0,
        "heads": pd.DataFrame([(0, 0, 9.0, 9.0, True), (0, 1, 0.1, 0.0, False), (1, 0, 0.0, 0.0, False),
                               (1, 1, -3.0, 1.0, True)], columns=heads),
        "inputs": pd.DataFrame([(0, 0, "v", 9.0, 9.0, True), (1, 1, "q", -2.0, 0.0, True),
                                (1, 1, "k", -3.0, 1.0, True), (1, 0, "k", 0.0, 0.0, False)],
                               columns=["layer", "head", "input", *heads[2:]]),
        "edges": pd.DataFrame([(0, 0, 1, 1, "k", -3.0, 5.0, True), (0, 1, 1, 0, "v", 0.1, 0.0, False)],
                              columns=["from_layer", "from_head", "to_layer", "to_head", "input", *heads[2:]]),
    }  # fmt: skip
    curve = pd.Series([0.1, 0.5, 0.9], index=[0, 10, 20])
    figure = circuits(
        {"one": {0: (curve, found), 2: (curve / 2, found)}, "set": {0: (None, found)}}
    )
    accuracy, first, second = figure.axes[:3]
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [
        [0.1, 0.5, 0.9],
        [0.05, 0.25, 0.45],
    ]
    assert (first.get_title(), second.get_title()) == ("seed 0, swing 10.0", "seed 2, swing 10.0")
    [path] = first.lines
    assert path.get_color() == INPUTS["k"]
    assert path.get_linewidth() == 0.8 + 4 * 0.5  # the larger size of effect and reverse
    assert {text.get_text(): text.get_position() for text in first.texts} == {
        "v": (0, 0),
        "qk": (1, 1),
    }
    [discs] = first.collections
    assert [width > 1 for width in discs.get_linewidths()] == [True, False, False, True]
    red, blue = (discs.get_facecolors()[i] for i in (0, 3))
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert not figure.axes[3].lines  # a model set by hand has no training
