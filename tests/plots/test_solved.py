"""What is drawn of solved problems: means and seeds where they belong, and the guess only where it is asked for."""

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from ihlab.plots.curves import Mark
from ihlab.plots.solved import by_operations, errors_by_class
from ihlab.plots.style import new_figure

MARKS = {"one": Mark("#000000", "o"), "other": Mark("#0072b2", "s")}
SHARES = {("one", 0): (0.8, 0.4), ("one", 1): (0.6, 0.2), ("other", 0): (1.0, 0.5), ("other", 1): (1.0, 0.7)}
TABLE = pd.DataFrame(
    [
        {"model": model, "seed": seed, "ops": ops, "measure": measure, "share": 0.25 if measure == "guess" else share}
        for (model, seed), shares in SHARES.items()
        for ops, share in zip((3, 6), shares, strict=True)
        for measure in ("strict", "guess")
    ]
)


@pytest.fixture
def axes():
    return new_figure(4.0, 3.0).add_subplot()


def test_means_seeds_and_the_end_of_training(axes):
    by_operations(axes, TABLE, "strict", MARKS, trained=3)
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["one"].get_ydata() == pytest.approx([0.7, 0.3])
    assert lines["other"].get_ydata() == pytest.approx([1.0, 0.6])
    assert to_hex(lines["other"].get_color()) == "#0072b2"
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert sorted(y for line in hollow for y in line.get_ydata()) == [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.0]
    assert lines["most operations in training"].get_xdata() == pytest.approx([4.5, 4.5])
    assert "always the commonest answer" not in lines
    assert axes.get_xticks().tolist() == [3, 6]


def test_the_guess(axes):
    by_operations(axes, TABLE, "strict", MARKS, trained=3, guess=True)
    [line] = [line for line in axes.lines if line.get_label() == "always the commonest answer"]
    assert line.get_ydata() == pytest.approx([0.25, 0.25])


def test_errors_in_a_hundred(axes):
    table = TABLE[TABLE["measure"] == "strict"].assign(measure=TABLE["ops"].map({3: "format", 6: "redefinition"}))
    errors_by_class(axes, table, ["redefinition", "format"], MARKS)
    drawn = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert drawn["one"] == pytest.approx([30.0, 70.0])
    assert drawn["other"] == pytest.approx([60.0, 100.0])
    ranges = [segment[:, 0].tolist() for lines in axes.collections for segment in lines.get_segments()]
    assert ranges == [pytest.approx(ends) for ends in ([20, 40], [60, 80], [50, 70], [100, 100])]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["redefinition", "format"]
