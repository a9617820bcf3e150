"""Multi-head latent attention: an induction head built by hand, and what reads its weights."""

import pytest
import torch

from ihlab import ModelConfig
from ihlab.interp.circuits import ov_circuit, qk_circuit
from ihlab.interp.heads import head_scores
from ihlab.interp.routes import all_routes, route_contributions
from tasks import ConfigError


@pytest.fixture
def make(make):
    """Models with latent attention, in float64."""
    return lambda **changes: make(**{"attention": "mla", "n_key_value_heads": 4, **changes})


def test_the_papers_shape_is_the_default():
    cfg = ModelConfig(n_layers=1, d_model=768, n_heads=12, d_vocab=2, n_ctx=2, attention="mla_kv")
    assert (cfg.latent_rank, cfg.rope_width, cfg.head_width - cfg.rope_width) == (256, 32, 32)


# What reads its weights and activations


@torch.no_grad()
def test_circuits_are_scores_and_outputs(make, tokens):
    """On the layer's normalised input, without rotation and at the same position."""
    model = make(attention="mla_kv")
    _, cache = model.run_with_cache(tokens)
    x = cache["normalized", 1, "ln1"]
    for head in range(4):
        q, k = cache["q", 1][:, :, head], cache["k_raw", 1, "attn"][:, :, head]
        own, before = (qk_circuit(model, 1, head, route).AB for route in range(2))
        torch.testing.assert_close(x @ (own + before) @ x.mT, q @ k.mT / 6**0.5, atol=1e-12, rtol=0)
        own, before = (ov_circuit(model, 1, head, route).AB for route in range(2))
        raw = cache["v_raw", 1, "attn"][:, :, head] @ model.layers[1].attn.W_O[head]
        torch.testing.assert_close(x @ (own + before), raw, atol=1e-12, rtol=0)
        assert (own == 0).all() == (head == 3)


@pytest.mark.parametrize("attention", ["mla", "mla_kv"])
def test_head_scores_run_and_routes_need_a_shift(make, tokens, attention):
    model = make(attention=attention)
    table = head_scores(model, length=12, rows=2)
    assert len(table) == 2 * 2 * 4
    assert table.notna().all(axis=None)
    if attention == "mla":
        with pytest.raises(ConfigError, match="'mla', which has no routes"):
            route_contributions(model, tokens, 1)


def test_routes_through_the_token_before_are_of_the_first_heads_key_and_the_last_heads_value(make, tokens):
    routes = route_contributions(make(attention="mla_kv"), tokens, 1, all_routes(2))
    assert [bool(of_head.any()) for of_head in routes[1, None].unbind(2)] == [True, False, False, False]
    assert [bool(of_head.any()) for of_head in routes[None, 1].unbind(2)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_key_value_heads": 2}, r"n_key_value_heads is 2, but with attention='mla' each of the n_heads=4"),
        ({"bias": True}, r"bias is True.*must be False"),
        ({"mla_rank": 0}, r"mla_rank is 0.*at least 1"),
        ({"d_head": 2}, r"d_head is 2, but 'mla' rotates only some pairs.*at least 4"),
        ({"attention": "mla_kv", "shift_window": 3}, r"shift_window is 3.*must be 2"),
        ({"attention": "mla_kv", "n_heads": 1, "n_key_value_heads": 1}, r"n_heads is 1, but must be at least 2"),
    ],
)
def test_configs_that_make_no_sense_are_refused(make_config, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_config(**{"attention": "mla", "n_key_value_heads": 4, **changes})
