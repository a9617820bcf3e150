"""TokenShift against a loop over tokens."""

import pytest
import torch

from ihlab.model.shift import TokenShift

WINDOWS = pytest.mark.parametrize("window", [2, 3, 4])


def shift_by_loop(x, weight):
    """Equation 5, one token at a time: x [batch, pos, head, d_head], weight [head, window]."""
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for head in range(x.shape[2]):
            for back in range(weight.shape[1]):
                if t - back >= 0:
                    out[:, t, head] += weight[head, back] * x[:, t - back, head]
    return out


@WINDOWS
@pytest.mark.parametrize("n_tokens", [1, 2, 7])
def test_shift_equals_a_loop_over_tokens(window, n_tokens):
    shift = TokenShift(3, window)
    x = torch.randn(2, n_tokens, 3, 5)
    torch.testing.assert_close(shift(x), shift_by_loop(x, shift.weight))


@WINDOWS
def test_what_the_hook_returns_replaces_the_own_weight(window):
    shift, x, weight = TokenShift(3, window), torch.randn(2, 7, 3, 5), torch.randn(3, window)
    own = shift.weight.detach().clone()
    torch.testing.assert_close(shift(x, lambda given: given.copy_(weight)), shift_by_loop(x, weight))
    assert torch.equal(shift.weight, own)  # the hook was given a copy


@WINDOWS
@pytest.mark.parametrize("n_before", [0, 1, 5])
def test_a_row_can_be_shifted_in_pieces(window, n_before):
    """The tokens before stand for the zeros; before the first token they are zeros."""
    shift, x = TokenShift(3, window), torch.randn(2, 7, 3, 5)
    padded = torch.cat([torch.zeros(2, window - 1, 3, 5), x], dim=1)
    before = padded[:, n_before : n_before + window - 1]
    for end in range(n_before + 1, 8):
        mixed = shift(x[:, n_before:end], before=before)
        torch.testing.assert_close(mixed, shift_by_loop(x, shift.weight)[:, n_before:end])


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
