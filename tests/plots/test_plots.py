"""What is drawn is what the table says, and drawing leaves no trace in the user's style."""

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.heads import attention_pattern, shift_weights
from ihlab.plots.style import new_figure, save


def table() -> pd.DataFrame:
    rows = [("a", seed, step, step * (seed + 1) / 100) for seed in range(3) for step in (0, 10, 20)]
    return pd.DataFrame(rows, columns=["curve", "seed", "step", "accuracy"])


def test_a_curve_is_the_median_and_its_band_holds_every_seed():
    axes = Figure().subplots()
    learning_curves(axes, table(), "step", "accuracy", {"a": Line("#000000"), "missing": Line("#111111")})
    [line] = axes.get_lines()
    assert line.get_label() == "a"
    assert np.asarray(line.get_xydata()).tolist() == [[0, 0], [10, 0.2], [20, 0.4]]
    [band] = axes.collections
    corners = band.get_paths()[0].vertices
    assert {(10.0, 0.1), (10.0, 0.3), (20.0, 0.2), (20.0, 0.6)} <= {(float(x), round(float(y), 6)) for x, y in corners}


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        figure = new_figure(3.0, 2.0)
        learning_curves(figure.subplots(), table(), "step", "accuracy", {"a": Line("#0072B2")})
        save(figure, tmp_path / name)
    for ending in ("svg", "png"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_the_users_style_is_left_alone(tmp_path):
    before = dict(mpl.rcParams)
    figure = new_figure(3.0, 2.0)
    learning_curves(figure.subplots(), table(), "step", "accuracy", {"a": Line("#0072B2")})
    save(figure, tmp_path / "picture")
    assert dict(mpl.rcParams) == before


def test_a_pattern_is_drawn_with_its_tokens():
    axes = Figure().subplots()
    pattern = np.tril(np.full((3, 3), 0.3))
    attention_pattern(axes, pattern, [7, 8, "x"])
    assert np.array_equal(axes.images[0].get_array(), pattern)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["7", "8", "x"]


def test_shift_weights_are_the_metrics_columns():
    names = ("alpha1", "alpha2", "beta1", "beta2")
    metrics = pd.DataFrame({"step": [0, 5], **{f"{name}_1.0": [0.1 * i, i] for i, name in enumerate(names)}})
    axes = Figure().subplots()
    shift_weights(axes, metrics, layer=1, kv_head=0)
    drawn = np.array([line.get_ydata() for line in axes.get_lines()[:4]])
    assert np.allclose(drawn, [[0, 0], [0.1, 1], [0.2, 2], [0.3, 3]])
