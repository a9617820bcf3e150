"""Attention against equations 4 to 6 of the paper as loops, and its fused path against its explicit one."""

import cmath
import math

import pytest
import torch

from ihlab.model.attention import Attention

KINDS = pytest.mark.parametrize(
    "kind",
    [
        {"attention": "vanilla"},
        {"attention": "kv_shift"},
        {"attention": "kv_shift", "shift_window": 3},
        {"positional": "alibi", "alibi_slopes": (0.5, 0.25, 1.5, 0.0)},
        {"positional": "none", "mask": "strict"},
        {"attention": "kv_shift", "positional": "alibi", "mask": "strict"},
        {"bias": True},
        {"attention": "kv_shift", "positional": "learned", "bias": True},
    ],
    ids=["vanilla", "window2", "window3", "alibi", "strict", "window2-alibi-strict", "bias", "window2-bias"],
)
HEADS = pytest.mark.parametrize("n_key_value_heads", [1, 2, 4])


def rotate(vector, t, base):
    """Rotary positions by complex numbers: coordinate i is a real, i + d/2 an imaginary part."""
    half = len(vector) // 2
    rotated = [complex(vector[i], vector[i + half]) * cmath.exp(1j * t / base ** (i / half)) for i in range(half)]
    return torch.tensor([c.real for c in rotated] + [c.imag for c in rotated], dtype=torch.float64)


def mix(vectors, weights):
    """Equation 5: each vector plus those before it, weighted."""
    mixed = []
    for t in range(len(vectors)):
        mixed.append(sum(w * vectors[t - back] for back, w in enumerate(weights) if t - back >= 0))
    return mixed


def softmax(scores):
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def rows(linear, head, d, token):
    """A head's rows of a projection, with their biases, on one token."""
    own = slice(head * d, (head + 1) * d)
    return linear.weight[own] @ token + (linear.bias[own] if linear.bias is not None else 0)


@torch.no_grad()
def attention_by_loops(attn, cfg, x):
    """Equations 4 to 6 for one row x [pos, d_model], in float64, from the raw weight matrices."""
    d = cfg.d_head
    out = torch.zeros_like(x)
    for head in range(cfg.n_heads):
        group = head // (cfg.n_heads // cfg.n_key_value_heads)
        queries = [rows(attn.q_proj, head, d, token) for token in x]
        keys = [rows(attn.k_proj, group, d, token) for token in x]
        values = [rows(attn.v_proj, group, d, token) for token in x]
        if cfg.attention == "kv_shift":
            keys, values = mix(keys, attn.alpha[group].tolist()), mix(values, attn.beta[group].tolist())
        if cfg.positional == "rope":
            queries = [rotate(q, t, cfg.rotary_base) for t, q in enumerate(queries)]
            keys = [rotate(k, t, cfg.rotary_base) for t, k in enumerate(keys)]
        slope = 0.0
        if cfg.positional == "alibi":
            slope = cfg.alibi_slopes[head] if cfg.alibi_slopes else 2.0 ** (-8 * (head + 1) / cfg.n_heads)
        for t in range(len(x)):
            seen = range(t) if cfg.mask == "strict" else range(t + 1)
            pattern = softmax([float(queries[t] @ keys[s]) / math.sqrt(d) - slope * (t - s) for s in seen])
            z = sum((pattern[s] * values[s] for s in seen), start=torch.zeros(d, dtype=torch.float64))
            out[t] += attn.o_proj.weight[:, head * d : (head + 1) * d] @ z
    return out if attn.o_proj.bias is None else out + attn.o_proj.bias


@KINDS
@HEADS
def test_attention_equals_the_equations_as_loops(make_config, kind, n_key_value_heads):
    cfg = make_config(n_key_value_heads=n_key_value_heads, **kind)
    torch.manual_seed(0)
    attn = Attention(cfg).double()
    x = torch.randn(2, 7, cfg.d_model, dtype=torch.float64)
    expected = torch.stack([attention_by_loops(attn, cfg, row) for row in x])
    torch.testing.assert_close(attn(x), expected, rtol=1e-6, atol=1e-6)  # the angles are kept in float32


def listen(point):
    """A hook that changes nothing."""
    point.add_hook(lambda tensor, hook: None)


@KINDS
@HEADS
@pytest.mark.parametrize("listener", ["hook_pattern", "hook_attn_scores"])
def test_the_fused_path_equals_the_explicit_path(make_config, kind, n_key_value_heads, listener):
    cfg = make_config(n_key_value_heads=n_key_value_heads, **kind)
    attn = Attention(cfg)
    x = torch.randn(3, 9, cfg.d_model)
    fused = attn(x)
    listen(getattr(attn, listener))
    torch.testing.assert_close(attn(x), fused)


@KINDS
@HEADS
@pytest.mark.parametrize("explicit", [False, True], ids=["fused", "explicit"])
def test_queries_at_some_positions_give_the_output_there(make_config, kind, n_key_value_heads, explicit):
    cfg = make_config(n_key_value_heads=n_key_value_heads, **kind)
    attn = Attention(cfg)
    x, positions = torch.randn(3, 9, cfg.d_model), torch.tensor([[0, 8], [3, 4], [7, 7]])
    everywhere = attn(x)
    if explicit:
        listen(attn.hook_pattern)
    x_q, expected = (torch.stack([of[row, positions[row]] for row in range(3)]) for of in (x, everywhere))
    torch.testing.assert_close(attn.read(attn.queries(x_q), *attn.keys_values(x), positions), expected)
    for some in (slice(0, 1), slice(0, 4), slice(3, 4), slice(3, 7), slice(8, 9)):
        torch.testing.assert_close(attn.read(attn.queries(x[:, some]), *attn.keys_values(x), some), everywhere[:, some])


@KINDS
@HEADS
def test_gradients_of_the_fused_path_equal_those_of_the_explicit_path(make_config, kind, n_key_value_heads):
    cfg = make_config(n_key_value_heads=n_key_value_heads, **kind)
    attn = Attention(cfg)
    x = torch.randn(3, 9, cfg.d_model, requires_grad=True)
    wanted = [x, *attn.parameters()]
    fused = torch.autograd.grad((attn(x) ** 2).sum(), wanted)
    listen(attn.hook_pattern)
    explicit = torch.autograd.grad((attn(x) ** 2).sum(), wanted)
    for ours, theirs in zip(fused, explicit, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_fused_kernel_runs_unless_scores_or_pattern_are_listened_to(make_config, monkeypatch):
    fused, calls = torch.nn.functional.scaled_dot_product_attention, []

    def counted(*args, **kwargs):
        calls.append(1)
        return fused(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    attn = Attention(make_config())
    x = torch.randn(3, 9, 20)
    listen(attn.hook_z)
    attn(x)
    assert len(calls) == 1
    listen(attn.hook_pattern)
    attn(x)
    assert len(calls) == 1


@KINDS
def test_the_output_is_the_sum_of_the_heads_results_and_the_bias(make_config, kind):
    attn = Attention(make_config(**kind))
    x, seen = torch.randn(3, 9, 20), {}
    unhooked = attn(x)
    attn.hook_result.add_hook(lambda result, hook: seen.update(result=result))
    torch.testing.assert_close(attn(x), unhooked)
    torch.testing.assert_close(seen["result"].sum(dim=2) + attn.b_O, unhooked)
    assert attn.b_O.any() == ("bias" in kind)


def test_weights_are_shown_in_the_layout_of_transformer_lens(make_config):
    cfg = make_config()
    attn = Attention(cfg)
    x, seen = torch.randn(3, 9, 20), {}
    for name in ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result"):
        getattr(attn, name).add_hook(lambda tensor, hook, name=name: seen.update({name: tensor}))
    attn(x)
    for head in range(4):
        torch.testing.assert_close(seen["hook_q"][:, :, head], x @ attn.W_Q[head])
        torch.testing.assert_close(seen["hook_result"][:, :, head], seen["hook_z"][:, :, head] @ attn.W_O[head])
    for group in range(2):
        torch.testing.assert_close(seen["hook_k"][:, :, group], x @ attn.W_K[group])
        torch.testing.assert_close(seen["hook_v"][:, :, group], x @ attn.W_V[group])


@pytest.mark.parametrize("name", ["W_Q", "W_K", "W_V", "W_O"])
def test_writing_to_a_shown_weight_writes_to_the_model(make_config, name):
    attn = Attention(make_config())
    x = torch.randn(3, 9, 20)
    before = attn(x)
    with torch.no_grad():
        getattr(attn, name)[0] = 0
    assert not torch.allclose(attn(x), before)
    assert not getattr(attn, name)[0].any()


def test_alpha_and_beta_are_the_shifts_own_parameters(make_config):
    attn = Attention(make_config(attention="kv_shift", shift_window=3))
    assert attn.alpha is attn.key_shift.weight
    assert attn.beta is attn.value_shift.weight
    assert attn.alpha.shape == attn.beta.shape == (2, 3)


@pytest.mark.parametrize("attention", ["vanilla", "kv_shift"])
def test_biases_are_shown_in_the_layout_of_transformer_lens(make_config, attention):
    """Of a zero vector the projections are their biases."""
    attn = Attention(make_config(attention=attention, bias=True))
    x, seen, shifted = torch.zeros(3, 9, 20), {}, attention == "kv_shift"
    names = {
        "b_Q": "hook_q",
        "b_K": "hook_k_raw" if shifted else "hook_k",
        "b_V": "hook_v_raw" if shifted else "hook_v",
    }
    for name in names.values():
        getattr(attn, name).add_hook(lambda tensor, hook, name=name: seen.update({name: tensor}))
    attn(x)
    for bias, name in names.items():
        torch.testing.assert_close(seen[name], getattr(attn, bias).expand(3, 9, -1, -1))
    with torch.no_grad():
        attn.b_V.zero_()  # a view
    torch.testing.assert_close(attn(x), attn.b_O.expand(3, 9, 20))


def test_without_biases_zeros_are_shown(make_config):
    attn = Attention(make_config())
    shapes = {"b_Q": (4, 6), "b_K": (2, 6), "b_V": (2, 6), "b_O": (20,)}
    for name, shape in shapes.items():
        assert torch.equal(getattr(attn, name), torch.zeros(shape))


# Dropout


def dropped_pattern(attn, x, explicit):
    """What multiplies the values, seen by giving each key a value of its own: z is then the pattern itself."""
    seen, n_pos = {}, x.shape[1]
    attn.hook_v.add_hook(lambda v, hook: torch.eye(n_pos)[None, :, None].expand_as(v))
    attn.hook_z.add_hook(lambda z, hook: seen.update(z=z.transpose(1, 2)))
    if explicit:
        attn.hook_pattern.add_hook(lambda pattern, hook: seen.update(pattern=pattern))
    attn(x)
    return seen


@torch.no_grad()
@pytest.mark.parametrize("explicit", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("mask", ["causal", "strict"])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_in_training_dropout_falls_on_the_pattern(make_config, explicit, mask, rate):
    """Entries are 0 with the chance `rate` (to five standard errors), else the pattern's over 1 - rate."""
    attn = Attention(make_config(n_key_value_heads=4, d_head=16, n_ctx=16, dropout=rate, mask=mask))
    x = torch.randn(50, 16, 20)
    dropped = dropped_pattern(attn.train(), x, explicit)["z"]
    seen = dropped_pattern(attn.eval(), x, explicit=True)
    pattern = seen["pattern"]
    torch.testing.assert_close(seen["z"], pattern)  # off in evaluation
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (pattern / (1 - rate))[kept])
    possible = int((pattern > 0).sum())
    n_dropped = possible - int(kept.sum())
    assert abs(n_dropped - rate * possible) < 5 * (possible * rate * (1 - rate)) ** 0.5


@torch.no_grad()
def test_hook_pattern_sees_the_pattern_before_dropout(make_config):
    attn = Attention(make_config(dropout=0.5)).train()
    seen = {}
    attn.hook_pattern.add_hook(lambda pattern, hook: seen.update(pattern=pattern))
    attn(torch.randn(3, 9, 20))
    torch.testing.assert_close(seen["pattern"].sum(dim=-1), torch.ones(3, 4, 9))


def test_the_paths_and_their_gradients_are_equal_with_dropout_off(make_config):
    attn = Attention(make_config(dropout=0.5, bias=True, attention="kv_shift")).eval()
    x = torch.randn(3, 9, 20)
    weights = list(attn.parameters())
    fused = torch.autograd.grad((attn(x) ** 2).sum(), weights)
    listen(attn.hook_pattern)
    explicit = torch.autograd.grad((attn(x) ** 2).sum(), weights)
    for ours, theirs in zip(fused, explicit, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
