"""A head's coordinates without signs, and the time of the theorem's flow without signs."""

import numpy as np
import pandas as pd
import pytest

from figures.basin_map.gauge import coordinates

pytestmark = pytest.mark.slow


def test_coordinates_by_hand():
    corner = coordinates(0.0, 1.0, 1.0, 0.0)
    assert corner == {"key_angle": 0.0, "value_angle": 0.0, "key_norm": 1.0, "value_norm": 1.0}
    assert not any(np.signbit(list(coordinates(-0.0, 1.0, 1.0, -0.0).values())))
    assert coordinates(3.0, 4.0, 1.0, -1.0) == {
        "key_angle": 0.643501,
        "value_angle": -0.785398,
        "key_norm": 5.0,
        "value_norm": 1.414214,
    }


def test_all_four_mirror_images_of_a_start_have_identical_coordinates():
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(4, 1000))
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[[-1.0, -0.0, 0.0, 0.3]] * 4)])
    at = np.concatenate([drawn, grid], axis=1)
    own = pd.DataFrame(coordinates(*at))
    for signs in ((-1, -1, 1, 1), (1, 1, -1, -1), (-1, -1, -1, -1)):
        image = pd.DataFrame(coordinates(*(np.array(signs)[:, None] * at)))
        pd.testing.assert_frame_equal(image, own, check_exact=True)
    angles = own[["key_angle", "value_angle"]]
    assert angles.min().min() == -1.570796
    assert (angles < np.pi / 2).all(axis=None)
