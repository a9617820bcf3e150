"""Both MLPs by hand."""

import math

import pytest
import torch

from ihlab.model.mlp import GeluMLP, SwiGLU, make_mlp

KINDS = pytest.mark.parametrize("kind", [SwiGLU, GeluMLP])


def gelu(x):
    """The tanh approximation, a number at a time."""
    return torch.tensor([v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x.tolist()])


def test_gelus_hooks_see_the_neurons_before_and_after(make_config):
    mlp, x, seen = GeluMLP(make_config(bias=True)), torch.randn(2, 3, 20), {}
    mlp.hook_pre.add_hook(lambda pre, hook: seen.update(pre=pre))
    mlp.hook_post.add_hook(lambda post, hook: seen.update(post=post))
    out = mlp(x)
    torch.testing.assert_close(seen["pre"], x @ mlp.W_in + mlp.b_in)
    torch.testing.assert_close(seen["post"].flatten(), gelu(seen["pre"].flatten()))
    torch.testing.assert_close(out, seen["post"] @ mlp.W_out + mlp.b_out)


@KINDS
def test_weights_are_shown_in_the_layout_of_transformer_lens(make_config, kind):
    mlp = kind(make_config())
    assert mlp.W_in.shape == (20, 14)
    assert mlp.W_out.shape == (14, 20)
    assert kind is GeluMLP or mlp.W_gate.shape == (20, 14)


@KINDS
def test_biases_are_shown_and_zeros_without(make_config, kind):
    with_bias, without = kind(make_config(bias=True)), kind(make_config())
    assert with_bias.b_in is with_bias.in_proj.bias
    assert with_bias.b_out is with_bias.out_proj.bias
    assert torch.equal(without.b_in, torch.zeros(14))
    assert torch.equal(without.b_out, torch.zeros(20))
    if kind is SwiGLU:
        assert with_bias.b_gate is with_bias.gate_proj.bias
        assert torch.equal(without.b_gate, torch.zeros(14))


@KINDS
def test_writing_to_a_shown_weight_writes_to_the_model(make_config, kind):
    mlp, x = kind(make_config()), torch.randn(2, 3, 20)
    with torch.no_grad():
        mlp.W_out[:] = 0
    assert not mlp(x).any()


@pytest.mark.parametrize(("name", "kind"), [("swiglu", SwiGLU), ("gelu", GeluMLP), ("none", type(None))])
def test_a_config_gets_the_mlp_it_names(make_config, name, kind):
    assert type(make_mlp(make_config(mlp=name))) is kind
