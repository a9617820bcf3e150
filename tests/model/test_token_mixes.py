"""Attention that mixes tokens elsewhere than in equation 5, against a loop over tokens and what it reduces to."""

import math
from functools import partial

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from ihlab import Transformer, train
from ihlab.interp.circuits import ov_circuit
from ihlab.interp.patching import path_patch, without_key_path
from ihlab.interp.patterns import effective_patterns, raw_patterns, score_routes
from ihlab.interp.routes import route_contributions
from ihlab.model.config import GPT2
from ihlab.model.decode import Decoder
from ihlab.model.hf import to_gpt2, to_llama
from ihlab.model.query_positions import may_gather
from ihlab.training.checkpoint import load
from ihlab.training.loop import make_optimizer
from ihlab.training.train import train_ensemble
from tasks import ConfigError

MIXING = ("input_shift.", "stream_shift.", "canon.", "convolution.", "input_gate.", "smear.")
"""What the names of the parameters hold that mix tokens."""

CASES = {
    "rwkv": {"attention": "rwkv_shift"},
    "rwkv, GPT-2's block, ALiBi": {
        "attention": "rwkv_shift", "norm": "layer", "mlp": "gelu", "bias": True, "positional": "alibi",
    },
    "stream before the norm": {"stream_shift": "before_norm"},
    "stream after the norm": {"stream_shift": "after_norm", "norm": "layer", "positional": "none"},
    "added to the stream": {"stream_shift": "added"},
    "canon": {"canon": "ABCD"},
    "primer": {"attention": "mdha"},
    "input gate": {"attention": "input_gate"},
    "canon B, GELU, no positions": {"canon": "B", "mlp": "gelu", "positional": "none"},
    "canon D, GELU": {"canon": "D", "mlp": "gelu"},
    "canon A and C, shifted stream": {"canon": "AC", "stream_shift": "after_norm"},
    "canon of keys": {"canon": "K"},
    "canon of values, GELU, bias": {"canon": "V", "mlp": "gelu", "bias": True},
    "canon of what is added": {"canon": "OM"},
    "canon at four sites": {"canon": "KVOM"},
    "canon of two taps": {"canon": "KM", "canon_taps": 2},
    "smeared embedding": {"smear": "embedding"},
    "smeared embedding, learned positions": {"smear": "embedding", "positional": "learned"},
    "smeared input of attention": {"smear": "attention", "norm": "layer"},
}  # fmt: skip
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

HEADS = (("query", 4), ("key", 2), ("value", 2))
STATE = {
    "rwkv": {"input": (1, 20)}, "rwkv, GPT-2's block, ALiBi": {"input": (1, 20)},
    "stream before the norm": {"stream": (1, 20)}, "stream after the norm": {"stream": (1, 20)},
    "added to the stream": {"stream": (1, 20)},
    "canon": {"A": (3, 1, 20), **{key: (3, n, 6) for key, n in HEADS}, "C": (3, 1, 20), "neuron": (3, 2, 14)},
    "canon B, GELU, no positions": {key: (3, n, 6) for key, n in HEADS},
    "canon D, GELU": {"neuron": (3, 1, 14)},
    "primer": {key: (2, n, 6) for key, n in HEADS},
    "input gate": {"key": (1, 2, 6), "value": (1, 2, 6)},
    "canon A and C, shifted stream": {"A": (3, 1, 20), "C": (3, 1, 20), "stream": (1, 20)},
    "canon of keys": {"key": (3, 2, 6)}, "canon of values, GELU, bias": {"value": (3, 2, 6)},
    "canon of what is added": {"O": (3, 1, 20), "M": (3, 1, 20)},
    "canon at four sites": {"key": (3, 2, 6), "value": (3, 2, 6), "O": (3, 1, 20), "M": (3, 1, 20)},
    "canon of two taps": {"key": (1, 2, 6), "M": (1, 1, 20)},
    "smeared input of attention": {"smear": (1, 20)},
}  # fmt: skip
"""What decoding keeps of a layer beside keys and values: the axes after the batch's.

Of a smeared embedding it is what the first layer's cache keeps."""

PARAMETERS = {
    "rwkv": 3 * 20, "rwkv, GPT-2's block, ALiBi": 3 * 20,
    "stream before the norm": 20, "stream after the norm": 20, "added to the stream": 20,
    "canon": 4 * (2 * 20 + (4 + 2 * 2) * 6 + 2 * 14), "canon B, GELU, no positions": 4 * (4 + 2 * 2) * 6,
    "input gate": 2 * 2 * (20 + 1), "primer": 3 * (4 + 2 * 2) * 6,
    "canon D, GELU": 4 * 14, "canon A and C, shifted stream": 4 * 2 * 20 + 20,
    "canon of keys": 4 * 2 * 6, "canon of values, GELU, bias": 4 * 2 * 6, "canon of what is added": 4 * 2 * 20,
    "canon at four sites": 4 * (2 * 2 * 6 + 2 * 20), "canon of two taps": 2 * (2 * 6 + 20),
    "smeared input of attention": 12 + 1,
}  # fmt: skip
"""Of a layer with d_model 20, d_mlp 14, four query heads and two key/value heads of width 6."""


def mixing(model):
    """Return the parameters that mix tokens, by name."""
    return {name: p for name, p in model.named_parameters() if any(part in name for part in MIXING)}


@pytest.fixture
def make(make_model):
    """Models in float64, with mixing weights that no start gives."""

    def moved(**changes):
        model = make_model(**changes).double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for weight in mixing(model).values():
                weight.add_(0.5 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        return model

    return moved


# One layer by a loop over tokens


def at(vectors, t):
    return vectors[t] if t >= 0 else torch.zeros_like(vectors[0])


def lerped(shift, vectors):
    """x + mu (Sx - x)."""
    return [x + shift.mu * (at(vectors, t - 1) - x) for t, x in enumerate(vectors)]


def convolved(part, group, vectors):
    """x, where there is a residual, plus the taps of each channel times its values so far."""
    taps = part.weight[group]
    mixed = [sum(tap * at(vectors, t - back) for back, tap in enumerate(taps)) for t in range(len(vectors))]
    return [part.residual * x + y for x, y in zip(vectors, mixed, strict=True)]


def gated(gate, group, vectors, read):
    """a x[t] + (1 - a) x[t - 1], a = sigmoid(w . u[t] + A)."""
    own = [1 / (1 + torch.exp(-(gate.weight[group] @ u) - gate.bias[group])) for u in read]
    return [a * x + (1 - a) * at(vectors, t - 1) for t, (a, x) in enumerate(zip(own, vectors, strict=True))]


def smeared(smear, vectors):
    """x + lambda sigmoid(w . x) Sx, w of the first 12 channels."""
    gates = [smear.scale / (1 + torch.exp(-(smear.weight[0] @ x[:12]))) for x in vectors]
    return [x + gate * at(vectors, t - 1) for t, (gate, x) in enumerate(zip(gates, vectors, strict=True))]


def layer_by_loop(block, cfg, stream):
    """Return the residual stream [pos, d_model] after a layer, token by token and head by head."""
    stream = list(stream)
    if cfg.stream_shift == "added":
        stream = [x + block.stream_shift.mu * at(stream, t - 1) for t, x in enumerate(stream)]
    read = lerped(block.stream_shift, stream) if cfg.stream_shift == "before_norm" else stream
    read = [x if block.ln1 is None else block.ln1(x[None, None])[0, 0] for x in read]
    read = lerped(block.stream_shift, read) if cfg.stream_shift == "after_norm" else read
    read = smeared(block.smear, read) if cfg.smear == "attention" else read
    read = convolved(block.canon["A"], 0, read) if "A" in cfg.canon else read
    out = attention_by_loop(block.attn, cfg, read)
    out = convolved(block.canon["O"], 0, out) if "O" in cfg.canon else out
    stream = [x + y for x, y in zip(stream, out, strict=True)]
    if block.mlp is None:
        return torch.stack(stream)
    read = [x if block.ln2 is None else block.ln2(x[None, None])[0, 0] for x in stream]
    read = convolved(block.canon["C"], 0, read) if "C" in cfg.canon else read
    added = list(mlp_by_loop(block, cfg, read))
    added = convolved(block.canon["M"], 0, added) if "M" in cfg.canon else added
    return torch.stack([x + y for x, y in zip(stream, added, strict=True)])


def mlp_by_loop(block, cfg, read):
    mlp = block.mlp
    linear = [x @ mlp.W_in + mlp.b_in for x in read]
    gates = [x @ mlp.W_gate + mlp.b_gate for x in read] if cfg.mlp == "swiglu" else linear
    if "D" in cfg.canon:  # GELU's one branch is both here
        gates, linear = convolved(mlp.canon, 0, gates), convolved(mlp.canon, -1, linear)
    for u, g in zip(linear, gates, strict=True):
        post = F.gelu(u, approximate="tanh") if cfg.mlp == "gelu" else g * g.sigmoid() * u
        yield post @ mlp.W_out + mlp.b_out


def attention_by_loop(attn, cfg, read):
    inputs = dict.fromkeys(("query", "key", "value"), read)
    if cfg.attention == "rwkv_shift":
        inputs = {what: lerped(attn.input_shift[what], read) for what in inputs}
    out = [attn.b_O.clone() for _ in read]
    for h in range(cfg.n_heads):
        g = h // (cfg.n_heads // cfg.kv_heads)
        queries = [x @ attn.W_Q[h] + attn.b_Q[h] for x in inputs["query"]]
        keys = [x @ attn.W_K[g] + attn.b_K[g] for x in inputs["key"]]
        values = [x @ attn.W_V[g] + attn.b_V[g] for x in inputs["value"]]
        convolve = {part: partial(convolved, each) for part, each in attn.convolution.items()}
        queries = convolve["query"](h, queries) if "query" in convolve else queries
        keys = convolve["key"](g, keys) if "key" in convolve else keys
        values = convolve["value"](g, values) if "value" in convolve else values
        if cfg.attention == "input_gate":
            keys, values = (
                gated(attn.input_gate["key"], g, keys, read),
                gated(attn.input_gate["value"], g, values, read),
            )
        for t, q in enumerate(queries):
            scores = [rotated(attn, q, t) @ rotated(attn, keys[s], s) / math.sqrt(cfg.d_head) for s in range(t + 1)]
            if cfg.positional == "alibi":
                scores = [score - 2.0 ** (-8 * (h + 1) / cfg.n_heads) * (t - s) for s, score in enumerate(scores)]
            pattern = torch.stack(scores).softmax(dim=0)
            out[t] = out[t] + sum(weight * value for weight, value in zip(pattern, values, strict=False)) @ attn.W_O[h]
    return out


def rotated(attn, vector, t):
    return vector if attn.rotary is None else attn.rotary(vector[None, None, None], slice(t, t + 1))[0, 0, 0]


@EVERY
def test_a_layer_equals_a_loop_over_tokens(make, case, tokens):
    model = make(**case)
    for block in model.layers:
        x = torch.randn(2, 7, 20, dtype=torch.float64)
        wanted = torch.stack([layer_by_loop(block, model.cfg, row) for row in x])
        torch.testing.assert_close(block(x), wanted, atol=1e-12, rtol=1e-10)
    if model.smear is not None:
        embedded = [torch.stack(smeared(model.smear, model.embed.weight[row])) for row in tokens]
        embedded = torch.stack(embedded) + (0 if model.pos_embed is None else model.pos_embed.weight[:9])
        torch.testing.assert_close(model.embedded(tokens), embedded, atol=1e-12, rtol=0)


# What every model does


@EVERY
def test_no_token_sees_a_later_one_and_hooks_change_nothing(make, case, tokens):
    model = make(**case)
    before, changed = model(tokens), tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 19
    after = model(changed)
    assert torch.equal(after[:, :5], before[:, :5])
    assert not torch.equal(after[:, 5:], before[:, 5:])
    torch.testing.assert_close(model.run_with_cache(tokens)[0], before, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_decoding_in_any_chunks_equals_the_full_forward_and_keeps_what_it_says(make, name, tokens):
    model = make(**CASES[name])
    wanted = model(tokens)
    for sizes in ([1] * 9, [2, 2, 2, 2, 1], [5, 1, 3], [9]):
        decoder = Decoder(model, 3, 9)
        logits = torch.cat([decoder.forward(piece) for piece in tokens.split(sizes, dim=1)], dim=1)
        torch.testing.assert_close(logits, wanted, atol=1e-10, rtol=0)
        if model.cfg.smear == "embedding":
            assert decoder.caches[0].raw.pop("smear").shape == (3, 1, 20)
        for cache in decoder.caches:
            assert {what: tuple(x.shape[1:]) for what, x in cache.raw.items()} == STATE.get(name, {})


@EVERY
def test_the_residual_at_some_positions_is_that_of_all(make, case, tokens):
    model, index = make(**case), torch.tensor([4, 0, 26, 13, 4])
    for queries in (None, torch.tensor([[0, 4, 1], [4, 0, 0], [2, 8, 7]])):
        some = model.residual_at(tokens, index, queries)
        torch.testing.assert_close(some, model.final_residual(tokens).flatten(0, 1)[index], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_a_model_adds_as_many_parameters_as_it_says(make_config, name):
    plain = make_config(**{field: value for field, value in CASES[name].items() if field not in MIXED_BY})
    model, vanilla = Transformer(make_config(**CASES[name])), Transformer(plain)
    wanted = 2 * PARAMETERS[name] if name in PARAMETERS else 12 + 1  # a smeared embedding: one for the model
    assert model.n_params - vanilla.n_params == wanted == sum(p.numel() for p in mixing(model).values())
    own = dict(model.named_parameters())
    assert all(torch.equal(weight, own[name]) for name, weight in vanilla.named_parameters())


MIXED_BY = ("attention", "stream_shift", "canon", "smear")
"""The fields that say how tokens are mixed."""


@EVERY
def test_gradients_equal_finite_differences(make, case, tokens):
    """Of each parameter along one random direction."""
    model, weights = make(**case), torch.randn(3, 9, 19, dtype=torch.float64)
    (model(tokens) * weights).sum().backward()
    for weight in mixing(model).values():
        along, values = torch.randn_like(weight), []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                weight.add_(along, alpha=step)
                values.append((model(tokens) * weights).sum())
        with torch.no_grad():
            weight.add_(along, alpha=1e-6)
        slope = (values[0] - values[1]) / 2e-6
        torch.testing.assert_close((weight.grad * along).sum(), slope, atol=1e-4, rtol=1e-5)


@EVERY
def test_weight_decay_leaves_what_mixes_tokens_alone(make_config, small, case):
    model = Transformer(make_config(**case))
    decayed, _ = make_optimizer(model, small).param_groups
    assert not {id(p) for p in decayed["params"]} & {id(p) for p in mixing(model).values()}


OTHERS = [{"attention": name} for name in ("forgetting", "output_gate", "gated_linear", "gated_delta", "trapezoid")]
OTHERS += [{"attention": "gated_delta", "canon": "B", "positional": "none"}, {"bigram_table": 30}]


@pytest.mark.parametrize("case", [*CASES.values(), *OTHERS], ids=str)
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


ELSEWHERE = [
    *(case for case in CASES.values() if case.get("canon") != "D"),
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
        lambda: without_key_path(model, tokens, [(0, 0)], (1, 0)),
    ):
        with pytest.raises(ConfigError, match=rf"The model has {model.cfg.values_mixed_elsewhere}, which mixes"):
            ask()


# What they reduce to


STREAM = ("before_norm", "after_norm", "added")


@torch.no_grad()
def alike(model, other):
    """Give `other` the weights of `model` where both have them."""
    given = dict(model.named_parameters())
    for name, weight in other.named_parameters():
        if name in given:
            weight.copy_(given[name])


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
        for sizes in ([1] * 9, [5, 1, 3]):
            decoder = Decoder(own, 3, 9)
            logits = torch.cat([decoder.forward(piece) for piece in tokens.split(sizes, dim=1)], dim=1)
            torch.testing.assert_close(logits, own(tokens), atol=1e-10, rtol=0)


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
