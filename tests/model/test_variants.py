"""Every variant of equation 5 against a loop over tokens, and against the variants that it reduces to."""

import math

import pytest
import torch

from ihlab import Transformer
from ihlab.interp import effective_pattern
from ihlab.interp.patterns import effective_patterns, score_bias, score_routes
from ihlab.interp.routes import all_routes, route_contributions
from ihlab.model.decode import Decoder
from ihlab.model.shift import SHIFT_RULES
from ihlab.model.variants import RULES, VARIANTS
from tasks import ConfigError

SHIFTED = [name for name, variant in VARIANTS.items() if variant.rules]

CASES = {
    **{name: {"attention": name} for name in SHIFTED},
    "window 3": {"attention": "kv_shift", "shift_window": 3},
    "window 4, the paper's start": {"attention": "kv_shift", "shift_window": 4, "shift_start": "uniform"},
    "window 3, sums to 1": {"attention": "kv_sum1", "shift_window": 3},
    "shared in a layer": {"attention": "kv_shift", "shift_share": "layer"},
    "shared in the model, gate": {"attention": "kv_gate", "shift_share": "model"},
    "each channel its own": {"attention": "qkv_shift", "shift_share": "channel"},
    "queries too, ALiBi, strict": {"attention": "qkv_shift", "positional": "alibi", "mask": "strict"},
    "queries with a shorter window": {"attention": "qkv_shift", "shift_window": 4, "query_window": 2},
    "only values, no positions": {"attention": "v_shift", "positional": "none"},
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture
def make(make_model):
    """Models in float64, with mixing weights that no start gives: beyond 1, negative, different for each head."""

    def moved(**changes):
        model = make_model(**changes).double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "_shift." in name:
                    weight.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        return model

    return moved


def by_loop(attn, x, slopes=None):
    """Attention of one layer, token by token and head by head: x [pos, d_model] to [pos, d_model]."""
    n_pos, group = len(x), attn.n_heads // attn.n_key_value_heads
    out = torch.zeros(n_pos, attn.W_O.shape[-1], dtype=x.dtype)

    def rotated(vector, t):
        return vector if attn.rotary is None else attn.rotary(vector[None, None, None], slice(t, t + 1))[0, 0, 0]

    def mixed(vectors, weights, t):
        terms = [weights[back] * vectors[t - back] for back in range(len(weights)) if t - back >= 0]
        return torch.stack(terms).sum(dim=0)

    for h in range(attn.n_heads):
        g = h // group
        queries, keys, values = x @ attn.W_Q[h], x @ attn.W_K[g], x @ attn.W_V[g]
        for t in range(n_pos):
            q = rotated(mixed(queries, attn.gamma[h], t), t)
            seen = range(t if attn.strict else t + 1)
            if not seen:
                continue
            scores = []
            for s in seen:
                k = rotated(mixed(keys, attn.alpha[g], s), s)
                bias = 0.0 if slopes is None else -slopes[h] * (t - s)
                scores.append(q @ k / math.sqrt(attn.d_head) + bias)
            pattern = torch.stack(scores).softmax(dim=0)
            z = sum(weight * mixed(values, attn.beta[g], s) for weight, s in zip(pattern, seen, strict=True))
            out[t] += z @ attn.W_O[h]
    return out


@EVERY
def test_a_layer_equals_a_loop_over_tokens(make, case):
    model = make(**case)
    for layer, block in enumerate(model.layers):
        x = torch.randn(2, 7, 20, dtype=torch.float64)
        slopes = model.cfg.slopes_in(layer) or [2.0 ** (-8 * (h + 1) / 4) for h in range(4)]
        wanted = [by_loop(block.attn, row, slopes if model.cfg.positional == "alibi" else None) for row in x]
        torch.testing.assert_close(block.attn(x), torch.stack(wanted), atol=1e-12, rtol=1e-10)


@EVERY
def test_no_token_sees_a_later_one(make, case, tokens):
    model = make(**case)
    before = model(tokens)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 19
    after = model(changed)
    assert torch.equal(after[:, :5], before[:, :5])
    assert not torch.equal(after[:, 5:], before[:, 5:])


@EVERY
def test_attention_with_hooks_equals_the_fused_kernel(make, case, tokens):
    model = make(**case)
    hooked, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(hooked, model(tokens), atol=1e-12, rtol=0)
    for layer in range(2):
        names = ("alpha", "beta", "gamma")
        assert {name for name in names if f"blocks.{layer}.attn.hook_{name}" in cache} == set(model.cfg.learned_shifts)


@EVERY
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_decoding_in_any_chunks_equals_the_full_forward(make, case, tokens, chunk):
    model = make(**case)
    decoder = Decoder(model, 3, 9)
    logits = torch.cat([decoder.forward(piece) for piece in tokens.split(chunk, dim=1)], dim=1)
    torch.testing.assert_close(logits, model(tokens), atol=1e-10, rtol=0)
    kept = {"alpha": "key", "beta": "value", "gamma": "query"}
    assert all(set(cache.raw) == {kept[name] for name in model.cfg.learned_shifts} for cache in decoder.caches)


@EVERY
@pytest.mark.parametrize("at", [None, [[0, 4, 1], [4, 0, 0], [2, 8, 7]]])
def test_the_residual_at_some_positions_is_that_of_all(make, case, tokens, at):
    model, index = make(**case), torch.tensor([4, 0, 26, 13, 4])
    some = model.residual_at(tokens, index, None if at is None else torch.tensor(at))
    torch.testing.assert_close(some, model.final_residual(tokens).flatten(0, 1)[index], atol=1e-12, rtol=0)


PARAMETERS = {
    "kv_shift": 4 * 2, "k_shift": 2 * 2, "v_shift": 2 * 2, "qkv_shift": 4 * 2 + 2 * 4, "kv_gate": 2 * 2,
    "kv_sum1": 2 * 2, "kv_clip": 4 * 2, "kv_project": 4 * 2,
    "kv_frozen": 4 * 2, "kv_frozen_unit": 4 * 2,
}  # fmt: skip
"""Of a layer with two key/value heads and four query heads."""


@pytest.mark.parametrize("attention", SHIFTED)
def test_a_variant_adds_as_many_parameters_as_it_says(make_config, attention):
    def count(**changes):
        return Transformer(make_config(**changes)).n_params

    vanilla = count()
    assert count(attention=attention) - vanilla == 2 * PARAMETERS[attention]
    if attention != "kv_gate":
        extra = {"kv_sum1": 2 * 2}.get(attention, PARAMETERS[attention] // 2)
        assert count(attention=attention, shift_window=3) - vanilla == 2 * (PARAMETERS[attention] + extra)


def test_sharing_leaves_the_parameters_that_it_says(make_config):
    counts = {}
    for share in ("head", "layer", "model", "channel"):
        counts[share] = Transformer(make_config(attention="kv_shift", shift_share=share)).n_params
    vanilla = Transformer(make_config()).n_params
    wanted = {"head": 2 * 8, "layer": 2 * 4, "model": 4, "channel": 2 * 8 * 6}
    assert {share: count - vanilla for share, count in counts.items()} == wanted


@EVERY
def test_gradients_equal_finite_differences(make, case, tokens):
    model, at = make(**case), torch.randn(3, 9, 19, dtype=torch.float64)
    loss = (model(tokens) * at).sum()
    loss.backward()
    for name, weight in model.named_parameters():
        if "_shift." not in name:
            continue
        if "frozen" in case["attention"]:
            assert (weight.grad == 0).all()
            continue
        for entry in range(weight.numel()):
            values, step = [], 1e-6
            for sign in (1, -1):
                with torch.no_grad():
                    weight.view(-1)[entry] += sign * step
                    values.append((model(tokens) * at).sum())
                    weight.view(-1)[entry] -= sign * step
            slope = (values[0] - values[1]) / (2 * step)
            torch.testing.assert_close(weight.grad.view(-1)[entry], slope, atol=1e-5, rtol=1e-5)


# What a variant reduces to


@torch.no_grad()
def alike(model, other, mixing):
    """Give `other` the weights of `model`, and to both the mixing weights [head, window] by name."""
    own = dict(other.named_parameters())
    for name, weight in model.named_parameters():
        if "_shift." not in name:
            own[name].copy_(weight)
    for each in (model, other):
        for block in each.layers:
            for name, rows in mixing.items():
                shift = {"alpha": block.attn.key_shift, "beta": block.attn.value_shift, "gamma": block.attn.query_shift}
                if shift[name] is not None:
                    rows_of = rows[:, : each.cfg.shift_window].double()
                    full = rows_of if shift[name].weight.ndim == 2 else rows_of[..., None].expand(-1, -1, 6)
                    stored = shift[name].stored(full)
                    shift[name].weight.copy_(stored[: len(shift[name].weight)])


KV = {"attention": "kv_shift"}
ONE, SOME = torch.tensor([[1.0, 0.0]] * 2).double(), torch.tensor([[0.3, 0.7], [0.9, 0.1]], dtype=torch.float64)
REDUCTIONS = {
    "alpha = beta = (1, 0) is vanilla": (KV, {}, {"alpha": ONE, "beta": ONE}),
    "K-only is KV with beta = (1, 0)": ({"attention": "k_shift"}, KV, {"alpha": SOME, "beta": ONE}),
    "V-only is KV with alpha = (1, 0)": ({"attention": "v_shift"}, KV, {"alpha": ONE, "beta": SOME}),
    "QKV with gamma = (1, 0) is KV": (
        {"attention": "qkv_shift"}, KV,
        {"alpha": SOME, "beta": SOME, "gamma": torch.tensor([[1.0, 0.0]] * 4)},
    ),
    "a gate is KV with rows that sum to 1": (
        {"attention": "kv_gate"}, KV, {"alpha": SOME, "beta": SOME.flip(0)},
    ),
    "sum to 1 likewise, beyond 1 too": (
        {"attention": "kv_sum1"}, KV, {"alpha": torch.tensor([[1.5, -0.5]] * 2), "beta": SOME},
    ),
    "clipped is KV inside": ({"attention": "kv_clip"}, KV, {"alpha": SOME, "beta": SOME}),
    "projected is KV": ({"attention": "kv_project"}, KV, {"alpha": SOME, "beta": SOME}),
    "frozen is KV": ({"attention": "kv_frozen"}, KV, {"alpha": SOME, "beta": SOME}),
    "window 3 with a zero is window 2": (
        {"attention": "kv_shift", "shift_window": 3}, KV,
        {"alpha": torch.tensor([[0.3, 0.7, 0.0]] * 2), "beta": torch.tensor([[0.9, 0.2, 0.0]] * 2)},
    ),
    "shared is KV with equal rows": (
        {"attention": "kv_shift", "shift_share": "model"}, KV,
        {"alpha": SOME[:1].expand(2, 2), "beta": SOME[1:].expand(2, 2)},
    ),
    "constant over channels is KV": (
        {"attention": "kv_shift", "shift_share": "channel"}, KV, {"alpha": SOME, "beta": SOME},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "other", "mixing"), REDUCTIONS.values(), ids=REDUCTIONS)
def test_a_variant_reduces_to_another(make, tokens, case, other, mixing):
    model, simpler = make(**case), make(**other)
    alike(model, simpler, mixing)
    torch.testing.assert_close(model(tokens), simpler(tokens), atol=1e-12, rtol=0)


# Starts


def test_variants_of_one_seed_start_alike(make_config):
    """Alpha, beta and all other weights: what two variants have in common is the same."""
    kv, k, v, qkv, sum1 = (
        Transformer(make_config(attention=name), seed=5)
        for name in ("kv_shift", "k_shift", "v_shift", "qkv_shift", "kv_sum1")
    )
    gate, channel = (
        Transformer(make_config(**case), seed=5)
        for case in ({"attention": "kv_gate"}, {"attention": "kv_shift", "shift_share": "channel"})
    )
    for layer in range(2):
        one = kv.layers[layer].attn
        assert torch.equal(k.layers[layer].attn.alpha, one.alpha)
        assert torch.equal(v.layers[layer].attn.beta, one.beta)
        for other in (qkv, sum1):
            assert torch.equal(other.layers[layer].attn.alpha, one.alpha)
            assert torch.equal(other.layers[layer].attn.beta, one.beta)
        torch.testing.assert_close(gate.layers[layer].attn.alpha, one.alpha, atol=1e-6, rtol=0)
        assert torch.equal(channel.layers[layer].attn.beta, one.beta[..., None].expand(-1, -1, 6))
        assert torch.equal(qkv.layers[layer].attn.W_Q, one.W_Q)


@pytest.mark.parametrize("window", [3, 4])
def test_the_papers_start_draws_all_columns_but_the_last(window):
    shift = SHIFT_RULES["free"](2000, window, torch.Generator().manual_seed(0), uniform=True)
    rows = shift.weights().detach()
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(2000))
    assert (rows[:, :-1].std(dim=0) - 12**-0.5).abs().max() < 0.02
    assert abs(torch.corrcoef(rows[:, :-1].T)[0, 1]) < 0.05
    assert rows[:, -1].min() < 0  # 1 - sum of the others may be negative


def test_a_gates_start_stays_off_the_ends():
    shift = SHIFT_RULES["gate"](20_000, 2, torch.Generator().manual_seed(0))
    own = shift.weights()[:, 0]
    assert own.min() >= 0.001 - 1e-6
    assert own.max() <= 0.999 + 1e-6
    assert shift.weight.abs().max() < 7


@pytest.mark.parametrize("kind", SHIFT_RULES)
def test_restarting_gives_the_weights_asked_for(kind):
    shift = SHIFT_RULES[kind](3, 2)
    shift.restart(0.25)
    wanted = torch.tensor([[0.25, 0.75]] * 3)
    torch.testing.assert_close(shift.weights(), wanted / wanted[0].norm() if kind == "frozen_unit" else wanted)


def test_a_window_of_three_has_no_gate(make_config):
    with pytest.raises(ConfigError, match=r"shift_window is 3.*gate.*must be 2"):
        make_config(attention="kv_gate", shift_window=3)


@pytest.mark.parametrize("kind", SHIFT_RULES)
def test_a_rule_says_what_its_weights_can_be(kind):
    shift, rule = SHIFT_RULES[kind], RULES[kind]
    far = torch.tensor([[-5.0, 6.0], [6.0, -5.0]])
    reached = shift.mixed(shift.stored(far))
    if kind not in ("project", "frozen_unit"):  # training keeps the bounds of the first; the second divides by the norm
        torch.testing.assert_close(reached, far.clamp(rule.low, rule.high), atol=1e-6, rtol=0)
    assert rule.tied == (shift(1, 2).weight.numel() == 1)
    for value in filter(math.isfinite, (rule.low, rule.high)):
        held = shift(1, 2)
        held.hold(0, 0, value)
        assert held.weights()[0, 0].item() == pytest.approx(value, abs=1e-6)


# What reads the mixing weights


@EVERY
def test_the_effective_pattern_reads_raw_values(make, case, tokens):
    """Each layer's z is the effective pattern over the values that were not shifted."""
    model = make(**case)
    _, cache = model.run_with_cache(tokens)
    if model.cfg.shift_share == "channel":
        with pytest.raises(ConfigError, match="if each channel has its own weights"):
            effective_patterns(cache)
        return
    patterns = effective_patterns(cache)
    for layer, block in enumerate(model.layers):
        raw = (
            block.attn.v_proj(block.attention_input(cache["resid_pre", layer]))
            .unflatten(-1, (2, 6))
            .repeat_interleave(2, dim=2)
        )
        z = torch.einsum("bhqk,bkhd->bqhd", patterns[layer], raw)
        torch.testing.assert_close(z, cache["z", layer], atol=1e-10, rtol=0)
        torch.testing.assert_close(effective_pattern(cache["pattern", layer], block.attn.beta), patterns[layer])


@EVERY
def test_key_routes_sum_to_the_scores(make, case, tokens):
    model = make(**case)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        scores = score_routes(cache, layer).sum(dim=0) + score_bias(cache, layer)
        torch.testing.assert_close(scores, cache["attn_scores", layer], atol=1e-10, rtol=0)


@EVERY
def test_value_routes_sum_to_z(make, case, tokens):
    """Routes that a variant does not have contribute nothing; the whole head is z."""
    model = make(**case)
    _, cache = model.run_with_cache(tokens)
    window = model.cfg.shift_window
    routes = route_contributions(model, tokens, 1, all_routes(window))
    total = sum(routes[None, column] for column in range(window))
    torch.testing.assert_close(total, cache["z", 1], atol=1e-10, rtol=0)
    torch.testing.assert_close(routes[None, None], cache["z", 1], atol=1e-12, rtol=0)
    for name, column_of in (("alpha", lambda r: (r, None)), ("beta", lambda r: (None, r))):
        if name not in model.cfg.learned_shifts:
            assert (routes[column_of(1)] == 0).all()
