"""Turns, medians, ratios of neighbours and goals, by hand."""

import numpy as np
from paired import figure, ratio, take_turns


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


def test_a_figure_is_the_median_and_the_range_of_starts():
    row = figure("table", "what", [3.0, 1.0, 8.0], "ms")
    assert (row["median"], row["low"], row["high"]) == (3, 1, 8)
    row = figure(
        "table", "what", np.array([[1.0, 9.0, 2.0], [5.0, 4.0, 0.0], [3.0, 3.0, 3.0]]), "ms"
    )
    assert (row["median"], row["low"], row["high"]) == (3, 2, 4)


def test_a_ratio_is_the_median_of_ratios_not_the_ratio_of_medians():
    a, b = np.array([1.0, 20.0, 3.0]), np.array([1.0, 10.0, 1.0])
    assert ratio("table", "a / b", a, b)["median"] == 2  # of 1, 2, 3; the medians' is 3
