"""Biases that may not be there, and logits without an unembedding."""

import torch
from torch import nn

from ihlab.model.lens.linear import FirstEntries, bias_of


def test_a_bias_is_shown_itself():
    linear = nn.Linear(3, 5)
    assert bias_of(linear) is linear.bias


def test_no_bias_is_zeros_like_the_weight():
    zeros = bias_of(nn.Linear(3, 5, bias=False, dtype=torch.float64))
    assert torch.equal(zeros, torch.zeros(5, dtype=torch.float64))


def test_the_first_entries_are_the_logits():
    x = torch.randn(2, 3, 7)
    assert torch.equal(FirstEntries(7, 5)(x), x[:, :, :5])
    assert torch.equal(FirstEntries(7, 7)(x), x)


def test_the_weight_says_the_same_and_is_no_parameter():
    unembed, x = FirstEntries(7, 5), torch.randn(4, 7)
    torch.testing.assert_close(x @ unembed.weight.T, unembed(x))
    assert not list(unembed.parameters())
    assert not unembed.state_dict()
