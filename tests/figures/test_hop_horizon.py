"""The hop horizon: interpolation by hand, and bounds."""

import numpy as np
import pytest

from figures.hops.horizon import hop_horizon


@pytest.mark.parametrize(
    ("errors", "followed", "log2_hops"),
    [
        ([0, 0, 0.2, 0.9], 2, (1 + np.log2(3)) / 2),
        ([0, 0.1, 0.1, 0.5], 3, np.log2(3)),  # 0.1 does not exceed 0.1
        ([0.05, 0.15, 0.0], 1, 0.5),  # the first crossing counts, and nothing after a gap
        ([0, 0, 0.05, 0.1], 4, 2.0),  # beyond the hops of a sequence there is only a bound
        ([0.2, 0.0], 0, 0.0),
    ],
)
def test_the_crossing_is_interpolated_in_log2_of_hops(errors, followed, log2_hops):
    assert hop_horizon(errors) == (followed, pytest.approx(log2_hops))
