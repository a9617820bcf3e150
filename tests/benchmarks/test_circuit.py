"""The drawing of a circuit: true heads and paths, and nothing else, are marked."""

import pandas as pd
from circuit import INPUTS, circuits

COLUMNS = ["layer", "head", "input", "effect", "reverse", "true"]


def test_true_nodes_are_marked():
    heads = pd.DataFrame(
        [(0, 0, "", 9.0, 9.0, True), (1, 0, "", 0.1, 0.0, False), (1, 1, "", -3.0, 1.0, True)],
        columns=COLUMNS,
    )
    inputs = pd.DataFrame(
        [
            (0, 0, "v", 9.0, 9.0, True),
            (1, 0, "k", 0.0, 0.0, False),
            (1, 1, "q", -2.0, 0.0, True),
            (1, 1, "k", -3.0, 1.0, True),
        ],
        columns=COLUMNS,
    )
    edges = pd.DataFrame(
        [(0, 0, 1, 1, "k", -3.0, 5.0, True), (0, 0, 1, 0, "v", 0.1, 0.0, False)],
        columns=["from_layer", "from_head", "to_layer", "to_head", *COLUMNS[2:]],
    )
    found = {"swing": 10.0, "heads": heads, "inputs": inputs, "edges": edges}
    curve = pd.Series([0.1, 0.5, 0.9], index=[0, 10, 20])
    figure = circuits({"one": {0: (curve, found)}, "set": {0: (None, found)}})
    accuracy, trained, empty, *_ = figure.axes
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [[0.1, 0.5, 0.9]]
    assert trained.get_title() == "seed 0, swing 10.0"
    [path] = trained.lines
    assert path.get_color() == INPUTS["k"]
    assert path.get_linewidth() == 0.8 + 4 * 0.5  # the larger size of effect and reverse
    places = {text.get_text(): text.get_position() for text in trained.texts}
    assert places == {"v": (0, 0), "qk": (1, 1)}
    [discs] = trained.collections
    assert [width > 1 for width in discs.get_linewidths()] == [True, False, True]
    red, _, blue = discs.get_facecolors()
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert not empty.lines  # a model set by hand has no training
