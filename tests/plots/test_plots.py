"""What is drawn is what the table says, and drawing leaves no trace in the user's style."""

import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from ihlab.plots import interactive, views
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.head_map import head_map
from ihlab.plots.heads import attention_pattern, shift_weights
from ihlab.plots.style import new_figure, write_picture
from tasks import ConfigError
from tests.plots.test_head_map import table as head_table


def table() -> pd.DataFrame:
    rows = [("a", seed, step, step * (seed + 1) / 100) for seed in range(3) for step in (0, 10, 20)]
    return pd.DataFrame(rows, columns=["curve", "seed", "step", "accuracy"])


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("one.svg", "one.png", "two.svg", "two.png"):
        figure = new_figure(3.0, 2.0)
        learning_curves(figure.subplots(), table(), "step", "accuracy", {"a": Line("#0072B2")})
        write_picture(figure, tmp_path / name)
    for ending in ("svg", "png"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (
            tmp_path / f"two.{ending}"
        ).read_bytes()


def test_an_svg_has_short_numbers_in_its_paths_and_all_of_its_words(tmp_path):
    figure = new_figure(3.0, 2.0)
    figure.subplots().plot([0, 1 / 3, 1 / 7], label="0.12345")
    figure.legend()
    write_picture(figure, tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert ">0.12345</text>" in drawn
    assert not any(re.search(r"\.\d{3}", path) for path in re.findall(r' d="[^"]*"', drawn))


USERS = {
    "font.size": 20.0,
    "figure.figsize": (9.0, 6.0),
    "axes.prop_cycle": mpl.cycler(color=["red"]),
}
SHIFTS = pd.DataFrame(
    {
        "step": [0, 5],
        **{f"{name}_0.0": [0.1, 0.2] for name in ("alpha1", "alpha2", "beta1", "beta2")},
    }
)


def on_axes(draw, *arguments):
    figure = Figure()
    draw(figure.subplots(), *arguments)
    return figure


DRAWN = {
    "attention_pattern": lambda: on_axes(attention_pattern, np.eye(2), ["a", "b"]),
    "head_map": lambda: head_map(head_table(4, 2), "a run"),
    "shift_weights": lambda: on_axes(shift_weights, SHIFTS, 0, 0),
    "views.curves": lambda: views.curves("step", "accuracy", colors="curve")(table()),
    "views.dots": lambda: views.dots("curve", "accuracy", log=True)(table().query("step > 0")),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_the_user_has_set_holds_in_a_drawing_and_after_it(name, tmp_path):
    def sizes(figure):
        return sorted({text.get_fontsize() for text in figure.findobj(Text)})

    usual = sizes(DRAWN[name]())
    with mpl.rc_context(USERS):
        before = dict(mpl.rcParams)
        figure = DRAWN[name]()
        assert sizes(figure) == pytest.approx([2 * size for size in usual])
        write_picture(figure, tmp_path / "picture.svg")
        assert dict(mpl.rcParams) == before


def test_wider_windows_have_a_line_for_each_weight():
    names = ("alpha1", "alpha2", "alpha3", "beta1", "beta2", "beta3")
    metrics = pd.DataFrame(
        {
            "step": [0, 5],
            **{f"{name}_0.11": [i, 10 + i] for i, name in enumerate(names)},
            "alpha1_0.1": 9,
        }
    )
    axes = Figure().subplots()
    shift_weights(axes, metrics, layer=0, kv_head=11)
    lines = axes.get_lines()[:6]
    assert [list(line.get_ydata()) for line in lines] == [[i, 10 + i] for i in range(6)]
    assert "2 tokens before" in lines[2].get_label()


def test_shift_weights_of_a_run_without_shift_are_refused_in_a_sentence():
    metrics = pd.DataFrame({"step": [0], "alpha1_0.1": [0.5]})
    with pytest.raises(
        ConfigError, match=r"no alpha and beta at layer 0, key/value head 0: they are those of"
    ):
        shift_weights(new_figure(1, 1).subplots(), metrics, layer=0, kv_head=0)
    with pytest.raises(ConfigError, match=r"^The metrics have no alpha and beta: they are"):
        interactive.shift_weights(metrics[["step"]])
