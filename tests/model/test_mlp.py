"""SwiGLU by hand."""

import torch

from ihlab.model.mlp import SwiGLU


def test_a_position_worked_by_hand(make_config):
    mlp, x = SwiGLU(make_config()), torch.randn(2, 3, 20)
    gate, linear = x @ mlp.W_gate, x @ mlp.W_in
    torch.testing.assert_close(mlp(x), (gate / (1 + torch.exp(-gate)) * linear) @ mlp.W_out)


def test_weights_are_shown_in_the_layout_of_transformer_lens(make_config):
    mlp = SwiGLU(make_config())
    assert mlp.W_gate.shape == mlp.W_in.shape == (20, 14)
    assert mlp.W_out.shape == (14, 20)


def test_writing_to_a_shown_weight_writes_to_the_model(make_config):
    mlp, x = SwiGLU(make_config()), torch.randn(2, 3, 20)
    with torch.no_grad():
        mlp.W_out[:] = 0
    assert not mlp(x).any()
