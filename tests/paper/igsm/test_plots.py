"""The picture of a head marks what is to be fetched."""

import numpy as np
from matplotlib.figure import Figure

from ihlab.paper.igsm.plots import operand_pattern


def test_what_is_to_be_fetched_is_squared_in_the_part_that_is_drawn():
    axes = Figure().subplots()
    operand_pattern(axes, np.eye(5), list("abcde"), [(4, (2, 3)), (3, [2])], start=2)
    [image], [squares] = axes.get_images(), axes.collections
    assert image.get_array().shape == (3, 3)
    assert squares.get_offsets().tolist() == [[0, 2], [1, 2], [0, 1]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d", "e"]
