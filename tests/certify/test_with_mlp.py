"""The bound over an MLP; every sequence is enumerated in `test_enumeration`."""

import numpy as np
import pytest
from flint import arb

from ihlab.certify import with_mlp


@pytest.mark.parametrize("unbounded", ["nan", "inf", "-inf"])
def test_one_margin_without_a_finite_end_proves_nothing(unbounded):
    for balls in ([arb(2), arb(unbounded)], [arb(unbounded), arb(2)]):
        assert with_mlp._least(np.array(balls, object)) == -np.inf
    assert with_mlp._least(np.array([arb(2), arb(3)], object)) == pytest.approx(2)
