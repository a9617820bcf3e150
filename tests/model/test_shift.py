"""The weights that a TokenShift starts with."""

import pytest
import torch

from ihlab.model.shift import TokenShift

WINDOWS = pytest.mark.parametrize("window", [2, 3, 4])


@WINDOWS
def test_fresh_rows_sum_to_one(window):
    torch.testing.assert_close(TokenShift(1000, window).weight.sum(dim=1), torch.ones(1000))


@WINDOWS
def test_fresh_column_0_is_uniform_on_0_1(window):
    own = TokenShift(1000, window).weight[:, 0]
    assert own.min() > 0
    assert own.max() < 1
    assert abs(own.mean() - 0.5) < 0.05
    assert abs(own.std() - 12**-0.5) < 0.02


@WINDOWS
def test_fresh_earlier_tokens_share_alike(window):
    earlier = TokenShift(10, window).weight[:, 1:]
    assert torch.equal(earlier, earlier[:, :1].expand(-1, window - 1))
