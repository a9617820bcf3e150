"""Biases that may not be there."""

import torch
from torch import nn

from ihlab.model.linear import bias_of


def test_a_bias_is_shown_itself():
    linear = nn.Linear(3, 5)
    assert bias_of(linear) is linear.bias


def test_no_bias_is_zeros_like_the_weight():
    zeros = bias_of(nn.Linear(3, 5, bias=False, dtype=torch.float64))
    assert torch.equal(zeros, torch.zeros(5, dtype=torch.float64))
