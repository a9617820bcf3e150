"""The square of Figure 2: values, slopes and their axes."""

import numpy as np
import pytest

from ihlab.theory import landscape


@pytest.mark.parametrize(
    "size", [{"form": "exact", "n_tokens": 12}, {"form": "printed", "other": 10}]
)
def test_rows_are_beta1_and_columns_alpha1(size):
    field = landscape.field(points=37, **size)
    for row, column in ((0, 0), (36, 0), (5, 30), (17, 16)):
        alpha1, beta1 = field.alpha1[column], field.beta1[row]
        assert field.loss[row, column] == pytest.approx(
            landscape.loss(alpha1, 1 - alpha1, beta1, 1 - beta1, **size), rel=1e-14
        )


def test_slopes_are_differences_along_the_square():
    field = landscape.field(n_tokens=12, points=501, low=-0.5, high=1.5)
    by_beta1, by_alpha1 = np.gradient(field.loss, field.beta1, field.alpha1)
    inside = (slice(1, -1), slice(1, -1))
    np.testing.assert_allclose(field.slope_alpha1[inside], by_alpha1[inside], atol=1e-5)
    np.testing.assert_allclose(field.slope_beta1[inside], by_beta1[inside], atol=1e-5)
