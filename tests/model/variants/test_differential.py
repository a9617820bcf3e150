"""Differential attention: how it starts, and what reads its weights."""

import math

import pytest
import torch

from ihlab import Transformer
from ihlab.interp.circuits import ov_circuit, qk_circuit
from ihlab.interp.patterns import score_routes
from ihlab.interp.routes import route_contributions
from tasks import ConfigError


@pytest.fixture
def make(make):
    """Models with this attention, in float64."""
    return lambda **changes: make(**{"attention": "differential", "d_head": 8, **changes})


def test_it_starts_and_has_parameters_as_its_paper_says(make_config):
    """Beside the maps of vanilla attention 4 vectors as wide as a half, and a norm as wide as the values."""
    shape = {"d_head": 64, "n_key_value_heads": 4}
    model, vanilla = (Transformer(make_config(attention=name, **shape)) for name in ("differential", "vanilla"))
    assert model.n_params - vanilla.n_params == 2 * (4 * 32 + 64)
    drawn = torch.cat([w.detach() for name, w in model.named_parameters() if "lambda_" in name])
    assert abs(drawn.std() - 0.1) < 0.02
    for layer, block in enumerate(model.layers):
        assert block.attn.lambda_init == pytest.approx(0.8 - 0.6 * math.exp(-0.3 * layer))
        assert abs(block.attn.lambda_weight.item() - block.attn.lambda_init) < 0.3
        assert torch.equal(block.attn.W_Q, vanilla.layers[layer].attn.W_Q)
        assert (block.attn.sub_norm.w == 1).all()


def test_a_hook_on_lambda_changes_it_and_leaves_the_parameters(make, tokens):
    model = make()
    plain, before = model(tokens), {name: x.clone() for name, x in model.state_dict().items()}
    with model.hooks(fwd_hooks=[(lambda name: name.endswith("hook_lambda"), lambda x, hook: x.zero_())]):
        _, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(cache["pattern", 0], cache["blocks.0.attn.hook_pattern_1"])
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    torch.testing.assert_close(model(tokens), plain)


# What reads its weights and activations


@torch.no_grad()
def test_an_ov_circuit_is_what_a_head_writes_but_for_scales(make, tokens):
    model = make(norm="none")
    _, cache = model.run_with_cache(tokens[:, :1])  # a first token reads itself alone, times 1 - lambda
    attn, x = model.layers[1].attn, cache["resid_pre", 1]
    scale = cache["blocks.1.attn.sub_norm.hook_scale"]
    for head in range(4):
        wanted = (1 - attn.lambda_weight) * (x @ ov_circuit(model, 1, head).AB) / scale[:, :, head]
        torch.testing.assert_close(cache["result", 1, "attn"][:, :, head], wanted, atol=1e-12, rtol=0)


def test_what_makes_no_sense_of_two_patterns_is_refused(make, tokens):
    model = make()
    _, cache = model.run_with_cache(tokens)
    with pytest.raises(ConfigError, match="two products of queries and keys"):
        qk_circuit(model, 0, 0)
    with pytest.raises(ConfigError, match="'differential', whose scores are not one sum"):
        score_routes(cache, 0)
    with pytest.raises(ConfigError, match="'differential', which has no routes"):
        route_contributions(model, tokens, 0)


def test_in_training_dropout_falls_on_the_difference(make, tokens):
    model = make(dropout=0.5)
    plain = model.eval()(tokens)
    model.train()
    torch.manual_seed(0)
    first = model(tokens)
    torch.manual_seed(0)
    hooked, _ = model.run_with_cache(tokens)
    torch.testing.assert_close(first, hooked)
    assert (first - plain).abs().max() > 1e-3


def test_heads_that_cannot_be_halved_are_refused(make_config):
    with pytest.raises(ConfigError, match=r"d_head is 6.*'rope': it must be a multiple of 4"):
        make_config(attention="differential")
    with pytest.raises(ConfigError, match=r"d_head is 5.*'none': it must be a multiple of 2"):
        make_config(attention="differential", positional="none", d_head=5)
