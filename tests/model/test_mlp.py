"""What both MLPs show of their weights."""

import pytest
import torch

from ihlab.model.mlp import GeluMLP, SwiGLU

KINDS = pytest.mark.parametrize("kind", [SwiGLU, GeluMLP])


@KINDS
def test_biases_are_shown_and_zeros_without(make_config, kind):
    with_bias, without = kind(make_config(bias=True)), kind(make_config())
    assert with_bias.b_in is with_bias.in_proj.bias
    assert with_bias.b_out is with_bias.out_proj.bias
    assert torch.equal(without.b_in, torch.zeros(14))
    assert torch.equal(without.b_out, torch.zeros(20))


@KINDS
def test_writing_to_a_shown_weight_writes_to_the_model(make_config, kind):
    mlp, x = kind(make_config()), torch.randn(2, 3, 20)
    with torch.no_grad():
        mlp.W_out[:] = 0
    assert not mlp(x).any()
