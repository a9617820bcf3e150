"""The weights that a TokenShift starts with."""

import pytest
import torch

from ihlab.model.shift import TokenShift


@pytest.mark.parametrize("window", [2, 4])
def test_fresh_rows_sum_to_one_with_a_uniform_column_0_and_equal_others(window):
    rows = TokenShift(1000, window).weight
    own, earlier = rows[:, 0], rows[:, 1:]
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(1000))
    assert own.min() > 0
    assert own.max() < 1
    assert abs(own.mean() - 0.5) < 0.05
    assert abs(own.std() - 12**-0.5) < 0.02
    assert torch.equal(earlier, earlier[:, :1].expand(-1, window - 1))
