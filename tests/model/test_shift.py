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


@WINDOWS
def test_a_restarted_shift_begins_every_row_with_the_number(window):
    shift = TokenShift(3, window)
    shift.restart(0.2)
    assert torch.equal(shift.weight, torch.tensor([[0.2] + (window - 1) * [0.8 / (window - 1)]] * 3))


def test_the_generator_decides_the_weights():
    first, again, other = (TokenShift(3, 2, torch.Generator().manual_seed(seed)).weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
