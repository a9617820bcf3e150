"""Attention that mixes tokens elsewhere than in equation 5: what it reduces to, how it starts, and who refuses it."""

import pandas as pd
import pytest
import torch

from ihlab import Transformer, train
from ihlab.interp.circuits import ov_circuit
from ihlab.interp.patching import path_patch, without_key_path
from ihlab.interp.patterns import effective_patterns, raw_patterns, score_routes
from ihlab.interp.routes import route_contributions
from ihlab.model.config import GPT2
from ihlab.model.hf import to_gpt2, to_llama
from ihlab.model.query_positions import may_gather
from ihlab.training.checkpoint import load
from ihlab.training.train import train_ensemble
from tasks import ConfigError
from tests.model.weights import alike

MIXING = ("input_shift.", "stream_shift.", "canon.", "convolution.", "input_gate.", "smear.")
"""What the names of the parameters hold that mix tokens."""

CASES = (
    {"attention": "rwkv_shift"},
    {"attention": "mdha"},
    {"attention": "input_gate"},
    {"stream_shift": "before_norm"},
    {"stream_shift": "after_norm", "norm": "layer"},
    {"stream_shift": "added"},
    {"canon": "ABCD"},
    {"canon": "D", "mlp": "gelu"},
    {"canon": "KVOM"},
    {"smear": "embedding", "positional": "learned"},
    {"smear": "attention"},
)


def mixing(model):
    """Return the parameters that mix tokens, by name."""
    return {name: p for name, p in model.named_parameters() if any(part in name for part in MIXING)}


# What every model does


OTHERS = [{"attention": name} for name in ("forgetting", "output_gate", "gated_linear", "gated_delta", "trapezoid")]
OTHERS += [{"attention": "gated_delta", "canon": "B", "positional": "none"}, {"bigram_table": 30}]


@pytest.mark.parametrize("case", [*CASES, *OTHERS], ids=str)
def test_a_run_goes_on_bit_for_bit_and_a_member_follows_it(small, tmp_path, case):
    config = small.replace(
        model=small.model.replace(**{"attention": "vanilla", **case}), steps=10, eval_every=5, warmup=1
    )
    whole, again = train(config, tmp_path / "whole"), train(config, tmp_path / "again")
    for path in ("done.json", "checkpoints/step-10.safetensors", "checkpoints/step-10.optimizer.safetensors"):
        (again.folder / path).unlink(missing_ok=True)
    resumed = train(config, tmp_path / "again")
    stored = load(whole.checkpoint_path(10))
    for name, weight in load(resumed.checkpoint_path(10)).items():
        assert torch.equal(weight, stored[name]), name
    assert case in OTHERS or any(part in name for name in stored for part in MIXING)
    member = train_ensemble([config, config.replace(seed=1)], tmp_path / "stack", stack=2)[0]
    pd.testing.assert_frame_equal(member.metrics, whole.metrics, atol=1e-4, rtol=0)


ELSEWHERE = [*(case for case in CASES if case.get("canon") != "D"), {"attention": "kv_shift", "shift_first": "own"}]


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
        lambda: without_key_path(model, tokens, [(0, 0)], (1, 0)),
    ):
        with pytest.raises(ConfigError, match=rf"The model has {model.cfg.values_mixed_elsewhere}, which mixes"):
            ask()


# What they reduce to


STREAM = ("before_norm", "after_norm", "added")


@torch.no_grad()
def set_kv(model, layer, alpha, beta):
    model.layers[layer].attn.alpha[:] = torch.as_tensor(alpha, dtype=torch.float64)
    model.layers[layer].attn.beta[:] = torch.as_tensor(beta, dtype=torch.float64)


def same(model, other, tokens):
    torch.testing.assert_close(model(tokens), other(tokens), atol=1e-12, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    "case",
    [
        {"attention": "rwkv_shift"},
        *({"stream_shift": at} for at in STREAM),
        {"canon": "ABCD"},
        {"canon": "KVOM"},
        {"smear": "embedding"},
        {"smear": "attention"},
    ],
)
def test_weights_of_0_are_vanilla(make, tokens, case):
    model, vanilla = make(**case), make()
    alike(model, vanilla)
    for weight in mixing(model).values():
        weight.zero_()
    same(model, vanilla, tokens)


@torch.no_grad()
def test_one_mu_for_all_channels_is_equation_5_with_one_alpha(make, tokens):
    """alpha = (1 - mu_k, mu_k) and beta = (1 - mu_v, mu_v) in every head: a projection is linear."""
    model, kv = make(attention="rwkv_shift"), make(attention="kv_shift")
    alike(model, kv)
    for layer, (key, value) in enumerate([(0.3, -0.4), (1.2, 0.9)]):
        shift = model.layers[layer].attn.input_shift
        for what, mu in (("query", 0.0), ("key", key), ("value", value)):
            shift[what].mu.fill_(mu)
        set_kv(kv, layer, [1 - key, key], [1 - value, value])
    same(model, kv, tokens)


@torch.no_grad()
def test_a_shift_of_the_normalised_stream_is_rwkvs_with_one_mu(make, tokens):
    """So is one before the norm where there is no norm."""
    for case in ({"stream_shift": "after_norm"}, {"stream_shift": "before_norm", "norm": "none"}):
        model, rwkv = make(**case), make(**{**case, "stream_shift": "none", "attention": "rwkv_shift"})
        alike(model, rwkv)
        for block, other in zip(model.layers, rwkv.layers, strict=True):
            for shift in other.attn.input_shift.values():
                shift.mu.copy_(block.stream_shift.mu)
        same(model, rwkv, tokens)


def test_a_path_through_a_stream_that_is_shifted_is_not_direct(make_model, tokens):
    with pytest.raises(ConfigError, match="stream_shift='added'"):
        path_patch(make_model(stream_shift="added"), tokens, tokens, (0, 0), (1, 0), "k")


@pytest.mark.parametrize(("convert", "block"), [(to_llama, {}), (to_gpt2, GPT2)])
def test_hugging_faces_blocks_mix_tokens_in_attention_alone(make_model, convert, block):
    with pytest.raises(ConfigError, match="stream_shift"):
        convert(make_model(**block, stream_shift="added"))


@torch.no_grad()
def test_canon_b_with_one_tap_for_all_channels_is_equation_5(make, tokens):
    """alpha = (1 + w0, w1) of each head's keys, beta likewise of its values, and nothing for queries."""
    model, kv = make(canon="B"), make(attention="kv_shift")
    alike(model, kv)
    for layer, block in enumerate(model.layers):
        taps = torch.randn(2, 2, 2, 1, dtype=torch.float64)
        for part, each in zip(("key", "value"), taps, strict=True):
            block.attn.convolution[part].weight.zero_()[:, :2] = each
        block.attn.convolution["query"].weight.zero_()
        set_kv(kv, layer, *(taps[..., 0] + torch.tensor([1.0, 0.0])))
    same(model, kv, tokens)


@torch.no_grad()
def test_a_convolution_of_keys_that_takes_the_token_before_is_a_key_shift(make, tokens):
    """u + conv(u) with taps (0, 1, 0, 0) is alpha = (1, 1), and with (-1, 1, 0, 0) it is (0, 1); of values likewise."""
    for place, part, attention in (("K", "key", "k_shift"), ("V", "value", "v_shift")):
        for own in (0.0, -1.0):
            model, shifted = make(canon=place), make(attention=attention)
            alike(model, shifted)
            for block, other in zip(model.layers, shifted.layers, strict=True):
                set_taps(block, **{part: [own, 1, 0, 0]})
                getattr(other.attn, f"{part}_shift").weight[:] = torch.tensor([1 + own, 1.0])
            same(model, shifted, tokens)


@torch.no_grad()
def test_a_smear_with_one_gate_for_all_tokens_is_a_shift_of_the_input(make, tokens):
    """w = 0 and lambda = 2 c: the input of attention is x + c Sx, so queries, keys and values are mixed by (1, c)."""
    model, qkv = make(smear="attention"), make(attention="qkv_shift")
    alike(model, qkv)
    for block, other in zip(model.layers, qkv.layers, strict=True):
        block.smear.weight.zero_()
        block.smear.scale.fill_(1.4)
        for shift in (other.attn.query_shift, other.attn.key_shift, other.attn.value_shift):
            shift.weight[:] = torch.tensor([1.0, 0.7], dtype=torch.float64)
    same(model, qkv, tokens)


@torch.no_grad()
def test_a_gate_of_a_smear_can_be_read_and_set(make, tokens):
    model, vanilla = make(smear="embedding"), make()
    alike(model, vanilla)
    _, cache = model.run_with_cache(tokens)
    assert cache["smear.hook_gate"].shape == (3, 9, 1)
    off = model.run_with_hooks(tokens, fwd_hooks=[("smear.hook_gate", lambda gate, hook: 0 * gate)])
    torch.testing.assert_close(off, vanilla(tokens), atol=1e-12, rtol=0)


@torch.no_grad()
def test_the_first_token_keeps_its_own(make, tokens):
    """By the rule "own": its key, value and query are the raw ones, and all others as with zeros before it."""
    for attention in ("kv_shift", "qkv_shift"):
        own, zero = (make(attention=attention, shift_first=first, shift_window=3) for first in ("own", "zero"))
        alike(zero, own)
        caches = [model.run_with_cache(tokens)[1] for model in (own, zero)]
        for what in ("q", "k", "v") if attention == "qkv_shift" else ("k", "v"):
            kept, padded = (cache[what, 0, "attn"] for cache in caches)
            assert torch.equal(kept[:, 0], caches[0][f"{what}_raw", 0, "attn"][:, 0])
            assert torch.equal(kept[:, 1:], padded[:, 1:])
            assert not torch.equal(kept[:, 0], padded[:, 0])


def test_canon_starts_as_a_convolution_of_torch_and_alpha_as_without_it(make_config):
    model = Transformer(make_config(canon="ACD", attention="kv_shift", d_model=400))
    drawn = torch.cat([weight.flatten() for weight in mixing(model).values()])
    assert drawn.abs().max() <= 0.5
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.std() - 12**-0.5) < 0.02
    assert torch.unique(drawn).numel() > 0.99 * drawn.numel()  # no two places, or layers, with the same draws
    kv = Transformer(make_config(attention="kv_shift", d_model=400))
    assert torch.equal(kv.layers[1].attn.alpha, model.layers[1].attn.alpha)


def test_a_canon_layer_of_the_mlp_leaves_equation_5_exact(make, tokens):
    model = make(canon="CD", attention="kv_shift")
    _, cache = model.run_with_cache(tokens)
    for layer, block in enumerate(model.layers):
        raw = cache["v_raw", layer, "attn"].repeat_interleave(2, dim=2)
        z = torch.einsum("bhqk,bkhd->bqhd", effective_patterns(cache)[layer], raw)
        torch.testing.assert_close(z, cache["z", layer], atol=1e-12, rtol=0)
        assert block.adds_neighbours
    assert not may_gather(model)
    assert may_gather(make(canon="AB"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"canon": "E"}, "canon is 'E'.*'ABCDKVOM'"),
        ({"canon": "BA"}, "canon is 'BA'.*in order"),
        ({"canon": "AA"}, "canon is 'AA'.*each once"),
        ({"canon": "AD", "mlp": "none"}, "canon is 'AD', but mlp is 'none'"),
        ({"canon": "M", "mlp": "none"}, "canon is 'M', but mlp is 'none'"),
        ({"canon": "BK"}, "canon is 'BK', but 'B' convolves keys and values already"),
        ({"canon": "V", "attention": "k_shift"}, "canon is 'V', but attention='k_shift'.*leave 'V' out"),
        ({"canon": "K", "attention": "key_offset", "d_head": 8}, "canon is 'K', but attention='key_offset'"),
        ({"attention": "key_offset"}, "d_head is 6, but 'key_offset'.*multiple of 4"),
        (
            {"attention": "partial_rotary", "d_head": 8, "rotary_scale": 2.0},
            "rotary_scale is 2.0, but attention='partial_rotary'",
        ),
        ({"canon": "B", "attention": "k_shift"}, "canon is 'B', but attention='k_shift'"),
        ({"canon": "B", "attention": "mdha"}, "canon is 'B', but attention='mdha'"),
        ({"canon": "B", "attention": "input_gate"}, "canon is 'B', but attention='input_gate'"),
        ({"shift_window": 3, "attention": "input_gate"}, "shift_window is 3.*gate.*must be 2"),
        ({"shift_share": "layer", "attention": "input_gate"}, "shift_share is 'layer'.*'head'"),
    ],
)
def test_what_makes_no_sense_together_is_refused(make_config, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(**changes)


def set_taps(block, **taps):
    """Set a convolution's taps [window] or [head, window], the same for every channel."""
    for part, each in taps.items():
        weight = block.attn.convolution[part].weight
        weight.copy_(torch.as_tensor(each, dtype=torch.float64)[..., None].expand_as(weight))


@torch.no_grad()
def test_primer_that_reads_the_token_itself_is_vanilla(make, tokens):
    model, vanilla = make(attention="mdha"), make()
    alike(model, vanilla)
    for block in model.layers:
        set_taps(block, query=[1, 0, 0], key=[1, 0, 0], value=[1, 0, 0])
    same(model, vanilla, tokens)


@torch.no_grad()
def test_primer_with_one_row_of_taps_a_head_is_equation_5_with_a_window_of_3(make, tokens):
    """Of queries as well: QKV."""
    for attention in ("kv_shift", "qkv_shift"):
        model, kv = make(attention="mdha"), make(attention=attention, shift_window=3)
        alike(model, kv)
        for block, other in zip(model.layers, kv.layers, strict=True):
            gamma = other.attn.gamma if attention == "qkv_shift" else [1, 0, 0]
            set_taps(block, query=gamma, key=other.attn.alpha, value=other.attn.beta)
        same(model, kv, tokens)


def test_primer_starts_from_a_half_and_two_sixths(make_config):
    for part, weight in mixing(Transformer(make_config(attention="mdha"))).items():
        wanted = torch.tensor([0.5, 0.5 / 3, 0.5 / 3])[:, None].expand_as(weight)
        assert torch.equal(weight, wanted), part


def test_a_gate_that_reads_nothing_is_kv_gate_and_starts_as_it(make_config, make, tokens):
    gate, kv = (Transformer(make_config(attention=name), seed=5) for name in ("input_gate", "kv_gate"))
    torch.testing.assert_close(gate(tokens), kv(tokens), atol=1e-5, rtol=0)
    model, kv = make(attention="input_gate"), make(attention="kv_gate")
    alike(model, kv)
    with torch.no_grad():
        for block, other in zip(model.layers, kv.layers, strict=True):
            for part, shift in (("key", other.attn.key_shift), ("value", other.attn.value_shift)):
                block.attn.input_gate[part].weight.zero_()
                shift.weight.copy_(block.attn.input_gate[part].bias[:, None])
    same(model, kv, tokens)


@torch.no_grad()
def test_a_gate_shifts_at_some_tokens_only(make, tokens):
    """And what a hook writes into it is what the keys and values are mixed by."""
    model, vanilla = make(attention="input_gate"), make()
    alike(model, vanilla)
    _, cache = model.run_with_cache(tokens)
    own = cache["blocks.0.attn.hook_key_gate"]
    assert own.shape == (3, 9, 2)
    assert own.std(dim=1).min() > 0.01
    names = [f"blocks.{layer}.attn.hook_{what}_gate" for layer in range(2) for what in ("key", "value")]
    unshifted = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda a, hook: torch.ones_like(a)) for name in names])
    torch.testing.assert_close(unshifted, vanilla(tokens), atol=1e-12, rtol=0)


def test_rwkv_starts_where_rwkv_6_does(make_config):
    model = Transformer(make_config(attention="rwkv_shift", n_layers=3, d_model=4, n_heads=2))
    mu = {what: [block.attn.input_shift[what].mu[1].item() for block in model.layers] for what in ("key", "value")}
    assert mu["key"] == pytest.approx([1 - 0.25, 1 - 0.25 ** (2 / 3), 1 - 0.25 ** (1 / 3)])
    assert mu["value"] == pytest.approx([mu["key"][0], mu["key"][1] - 0.15, mu["key"][2] - 0.3])
    queries = [block.attn.input_shift["query"].mu.tolist() for block in model.layers]
    assert queries[0] == pytest.approx([1, 0.5, 1 - 0.5**0.5, 1 - 0.75**0.5])
    assert queries[2][1] == pytest.approx(1 - 0.25 ** (1 / 6))
    alone = Transformer(make_config(attention="rwkv_shift", n_layers=1))
    assert torch.equal(alone.layers[0].attn.input_shift["value"].mu, alone.layers[0].attn.input_shift["key"].mu)
