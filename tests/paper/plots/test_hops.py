"""What is drawn of hops: a curve for each depth, the published one dotted, the constructions' hops marked."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.paper.plots.hops import hop_errors, hop_ticks


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
