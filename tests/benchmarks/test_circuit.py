"""The drawing of a circuit: true heads and paths, and nothing else, are marked."""

import pandas as pd
from circuit import INPUTS, circuits

HEAD = ["layer", "head", "effect", "reverse", "true"]
EDGE = ["from_layer", "from_head", "to_layer", "to_head", "input", *HEAD[2:]]
TRUTH = {
    "swing": 10.0,
    "heads": pd.DataFrame([(0, 0, 9.0, 9.0, True), (1, 0, 0.1, 0.0, False)], columns=HEAD),
    "inputs": pd.DataFrame(
        [(0, 0, "v", True), (1, 0, "k", False)], columns=["layer", "head", "input", "true"]
    ),
    "edges": pd.DataFrame(
        [(0, 0, 1, 0, "k", -3.0, 5.0, True), (0, 0, 1, 0, "v", 0.1, 0.0, False)], columns=EDGE
    ),
}


def test_true_nodes_are_marked():
    curve = pd.Series([0.1, 0.5, 0.9], index=[0, 10, 20])
    figure = circuits({"one": {0: (curve, TRUTH)}, "set": {0: (None, TRUTH)}})
    accuracy, trained, by_hand, *_ = figure.axes
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [[0.1, 0.5, 0.9]]
    [path] = trained.lines
    assert path.get_color() == INPUTS["k"]
    assert path.get_linewidth() == 0.8 + 4 * 0.5  # the larger size of effect and reverse
    assert [text.get_text() for text in trained.texts] == ["v"]
    [discs] = trained.collections
    assert [width > 1 for width in discs.get_linewidths()] == [True, False]
    red = discs.get_facecolors()[0]
    assert red[0] > red[2]
    assert not by_hand.lines  # no training
