"""What is drawn of hops: a curve for each depth, the published one dotted, the constructions' hops marked."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.curves import Mark
from ihlab.plots.hops import hop_errors, hop_ticks, horizon_law


def test_each_depth_is_a_curve_and_the_published_one_is_dotted():
    axes = Figure().subplots()
    rows = [
        {"n_layers": layers, "seed": seed, "hops": k, "error": 0.1 * k + 0.01 * seed}
        for layers in (2, 3)
        for seed in range(3)
        for k in range(1, 5)
    ]
    published = pd.DataFrame([{"n_layers": n, "hops": k, "error": 0.04 * k} for n in (2, 3, 4) for k in range(17)])
    hop_errors(axes, pd.DataFrame(rows), published)
    solid = [line for line in axes.get_lines() if line.get_linestyle() == "-"]
    assert [line.get_label() for line in solid] == ["2 layers", "3 layers"]
    np.testing.assert_allclose(solid[0].get_xydata(), [[k, 0.1 * k + 0.01] for k in range(1, 5)])
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [line.get_xdata().tolist() for line in dotted] == [[1, 2, 3, 4]] * 2, "no hops that the data lack"


def test_the_horizons_of_the_constructions_are_marked():
    axes = Figure().subplots()
    hop_ticks(axes, {1: 0, 2: 1, 3: 2}, 0.1)
    _, _, *marks = axes.get_lines()
    assert [list(line.get_xdata()) for line in marks] == [[1, 1], [2, 2]]


def test_every_model_is_a_point_and_a_bound_is_hollow_with_an_arrow():
    facts = {"attention": "K only", "n_layers": 2}
    table = pd.DataFrame([{**facts, "seed": seed, "log2_hops": seed, "bound": ""} for seed in range(3)])
    table.loc[2, "bound"] = "above"
    published = table[:1].assign(log2_hops=1.5)
    marks = {"vanilla": Mark("#ff0000", "s"), "K only": Mark("#0000ff", "P")}
    figure = horizon_law(table, marks, lambda variant, depth: {"by hand": 2**depth - 1, "other": 0}, published)
    [axes] = figure.axes
    points = [
        (line.get_ydata()[0], line.get_markerfacecolor()) for line in axes.get_lines() if line.get_marker() == "P"
    ]
    assert points == [(1, "#0000ff"), (2, "#0000ff"), (4, "white")]
    assert [(text.xy[1], text.get_text()) for text in axes.texts] == [(4, r"$\uparrow$")]
    assert [line.get_ydata()[0] for line in axes.get_lines() if line.get_marker() == "D"] == [2**1.5]
    bars = [segment[0][1] for lines in axes.collections for segment in lines.get_segments()]
    assert bars == [3, 2], "a construction's and the median"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["K only", "vanilla, published"], "vanilla has no column"
    assert labels[2:] == ["by hand", "other", "hollow: at least as many (no more are tested)"]
