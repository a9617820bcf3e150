"""The basins of the free flow: the wall between them, and which start lies where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ihlab.theory import landscape

pytestmark = pytest.mark.slow


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5), st.integers(5, 60), st.booleans())
def test_on_the_wall_the_loss_is_at_least_log_of_t_minus_3(
    x: float, y: float, z: float, n_tokens: int, through_alpha2: bool
) -> None:
    on_wall = (x, 0.0, y, z) if through_alpha2 else (x, y, 0.0, z)
    assert landscape.loss(*on_wall, n_tokens=n_tokens) >= np.log(n_tokens - 3) - 1e-12


def test_starts_end_where_a_finer_flow_takes_them():
    table = landscape.basins(5, points=5)
    assert set(table["basin"]) == {"induction", "negative"}
    for alpha1, beta1, basin in zip(table["alpha1"], table["beta1"], table["basin"], strict=True):
        end = landscape.flow(alpha1, 1 - alpha1, beta1, 1 - beta1, np.array([500.0]), 5)
        signs = (end.alpha2[0] > 0, end.beta1[0] > 0)
        assert signs == ((True, True) if basin == "induction" else (False, False))
