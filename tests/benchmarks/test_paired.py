"""Turns, medians, ratios of neighbours and bars, by hand."""

import numpy as np
import pandas as pd
from paired import Bar, figure, missed, ratio, take_turns


def test_sides_take_turns_and_the_first_round_does_not_count():
    order = []

    def side(name):
        def seconds():
            order.append(name)
            return float(len(order))

        return seconds

    taken = take_turns({"a": side("a"), "b": side("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    np.testing.assert_array_equal(taken["a"], [3, 5])
    np.testing.assert_array_equal(taken["b"], [4, 6])


def test_a_figure_is_the_median_and_the_range():
    row = figure("table", "what", [3.0, 1.0, 8.0], "ms")
    assert (row["median"], row["min"], row["max"]) == (3, 1, 8)


def test_a_ratio_is_the_median_of_ratios_not_the_ratio_of_medians():
    a, b = np.array([1.0, 20.0, 3.0]), np.array([1.0, 10.0, 1.0])
    assert ratio("table", "a / b", a, b)["median"] == 2  # of 1, 2, 3; the medians' is 3


def test_bars_are_kept_up_to_their_limit_and_missed_beyond():
    assert Bar(2).kept(2)
    assert not Bar(2).kept(2.01)
    assert Bar(2, at_least=True).kept(2)
    assert not Bar(2, at_least=True).kept(1.99)
    figures = [figure("table", name, [value], "s", Bar(1)) for name, value in (("good", 1.0), ("bad", 1.5))]
    assert missed(pd.DataFrame([*figures, figure("table", "free", [9.0], "s")])) == [
        "table: bad has the median 1.5, but must be <= 1."
    ]
