"""Attention that mixes tokens elsewhere than in equation 5: how it starts and is trained, and who
refuses it.
"""

import pytest
import torch

from ihlab import Transformer
from ihlab.interp.circuits import ov_circuit
from ihlab.interp.patching import path_patch, without_key_path
from ihlab.interp.patterns import effective_patterns, raw_patterns, score_routes
from ihlab.interp.routes import route_contributions
from ihlab.model.query_positions import may_gather
from tasks import ConfigError

ELSEWHERE = [
    {"attention": "key_offset", "d_head": 8},
    {"stream_shift": "added"},
    {"canon": "ABCD"},
    {"smear": "embedding"},
    {"attention": "kv_shift", "shift_first": "own"},
]


@pytest.mark.parametrize("case", ELSEWHERE, ids=str)
def test_what_asks_for_one_pattern_over_values_refuses(make_model, tokens, case):
    model = make_model(**case)
    _, cache = model.run_with_cache(tokens)
    assert raw_patterns(cache).shape == (2, 3, 4, 9, 9)
    for ask in (
        lambda: effective_patterns(cache),
        lambda: score_routes(cache, 0),
        lambda: route_contributions(model, tokens, 0),
        lambda: ov_circuit(model, 0, 0),
        lambda: without_key_path(model, tokens, (0, 0), (1, 0)),
    ):
        with pytest.raises(
            ConfigError, match=rf"The model has {model.cfg.mixes_tokens}, which mixes"
        ):
            ask()


# Refusals and starts


def test_a_path_through_a_stream_that_is_shifted_is_not_direct(make_model, tokens):
    with pytest.raises(ConfigError, match="stream_shift='added'"):
        path_patch(make_model(stream_shift="added"), tokens, tokens, (0, 0), (1, 0), "k")


@pytest.mark.parametrize("fields", [{"canon": "ABCD"}, {"attention": "qkv_shift"}], ids=str)
def test_from_an_identity_start_a_model_is_vanilla(make_config, tokens, fields):
    model, vanilla = (
        Transformer(make_config(**fields, shift_start="identity")),
        Transformer(make_config()),
    )
    torch.testing.assert_close(model(tokens), vanilla(tokens), atol=1e-6, rtol=0)


def test_canon_starts_as_a_convolution_of_torch_and_alpha_as_without_it(make_config):
    model = Transformer(make_config(canon="ACD", attention="kv_shift", d_model=400))
    drawn = [weight.flatten() for name, weight in model.named_parameters() if "canon." in name]
    drawn = torch.cat(drawn)
    assert drawn.abs().max() <= 0.5
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.std() - 12**-0.5) < 0.02
    assert (
        torch.unique(drawn).numel() > 0.99 * drawn.numel()
    )  # no two places, or layers, with the same draws
    kv = Transformer(make_config(attention="kv_shift", d_model=400))
    assert torch.equal(kv.layers[1].attn.alpha, model.layers[1].attn.alpha)


def test_a_canon_layer_of_the_mlp_leaves_equation_5_exact(make_model, tokens):
    model = make_model(canon="CD", attention="kv_shift").double()
    _, cache = model.run_with_cache(tokens)
    for layer, block in enumerate(model.layers):
        raw = cache["v_raw", layer, "attn"].repeat_interleave(2, dim=2)
        z = torch.einsum("bhqk,bkhd->bqhd", effective_patterns(cache)[layer], raw)
        torch.testing.assert_close(z, cache["z", layer], atol=1e-12, rtol=0)
        assert block.adds_neighbours
    assert not may_gather(model)
    assert may_gather(make_model(canon="AB"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"canon": "BA"}, "canon is 'BA'.*in order"),
        ({"canon": "AD", "mlp": "none"}, "canon is 'AD', but mlp is 'none'"),
        ({"canon": "BK"}, "canon is 'BK', but 'B' convolves keys and values already"),
        (
            {"canon": "K", "attention": "key_offset", "d_head": 8},
            "canon is 'K', but attention='key_offset'",
        ),
        ({"attention": "key_offset"}, "d_head is 6, but 'key_offset'.*multiple of 4"),
        (
            {"attention": "key_offset", "d_head": 8, "rotary_scale": 2.0},
            "rotary_scale is 2.0, but attention='key_offset'",
        ),
        ({"shift_window": 3, "attention": "kv_gate"}, "shift_window is 3.*gate.*must be 2"),
    ],
)
def test_what_makes_no_sense_together_is_refused(make_config, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(**changes)
