"""Linear recurrences against a loop over tokens in float64, and against what they reduce to."""

import math

import pytest
import torch
from torch.nn import functional as F

from ihlab import Transformer
from ihlab.interp.circuits import ov_circuit, qk_circuit
from ihlab.interp.heads import head_scores
from ihlab.interp.patching import path_patch, without_key_path
from ihlab.interp.patterns import raw_patterns, score_routes
from tasks import ConfigError

NAMES = ("gated_linear", "gated_delta", "trapezoid")
EACH = pytest.mark.parametrize("name", NAMES)
CASES = {
    **{name: {"attention": name} for name in NAMES},
    "no positions, a head each": {"attention": "gated_delta", "positional": "none", "n_key_value_heads": 4},
    "convolved": {"attention": "gated_linear", "canon": "B", "positional": "none"},
    "convolved delta rule": {"attention": "gated_delta", "canon": "B"},
}
GATES = {"gated_linear": 1, "gated_delta": 2, "trapezoid": 2}


@pytest.fixture
def make(make_model):
    """Models in float64, with gates that depend on the token."""

    def moved(**changes):
        model = make_model(**changes).double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if any(part in name for part in (".write.", ".erase.", ".trapezoid.", ".log_rate")):
                    weight.normal_(std=0.5, generator=generator)
        return model

    return moved


def by_loop(attn, cfg, x):
    """Attention of one layer by the recurrences of the modules: x [pos, d_model] to [pos, d_model]."""
    group, out = cfg.n_heads // cfg.kv_heads, torch.zeros_like(x)

    def gate(part, g, t):
        return part.weight[g] @ x[t] + part.bias[g]

    def vector(what, matrix, head, t):
        taps = attn.convolution[what].weight[head] if attn.convolution else torch.zeros(1, 1)
        own = x[t] @ matrix
        return own + sum(tap * (x[t - back] @ matrix) for back, tap in enumerate(taps) if t >= back)

    def matched(y, t):
        y = y if attn.rotary is None else attn.rotary(y[None, None, None], slice(t, t + 1))[0, 0, 0]
        return y / y.pow(2).sum().sqrt()

    for h in range(cfg.n_heads):
        g, rate = h // group, attn.log_rate[h // group].exp()
        state = torch.zeros(cfg.head_width, cfg.head_width, dtype=x.dtype)
        pair = torch.zeros_like(state)
        for t in range(len(x)):
            k, v = matched(vector("key", attn.W_K[g], g, t), t), vector("value", attn.W_V[g], g, t)
            step = torch.log(1 + gate(attn.write, g, t).exp())
            decay = torch.exp(-rate * step)
            if cfg.attention == "gated_linear":
                state = decay * state + step * torch.outer(k, v)
            if cfg.attention == "gated_delta":
                write = 1 / (1 + torch.exp(-gate(attn.erase, g, t)))
                erased = torch.eye(len(k), dtype=x.dtype) - write * torch.outer(k, k)
                state = decay * erased @ state + write * torch.outer(k, v)
            if cfg.attention == "trapezoid":
                own = 1 / (1 + torch.exp(-gate(attn.trapezoid, g, t)))
                state = decay * state + own * step * torch.outer(k, v) + (1 - own) * step * decay * pair
                pair = torch.outer(k, v)
            z = state.T @ matched(vector("query", attn.W_Q[h], h, t), t)
            out[t] += z @ attn.W_O[h]
    return out


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@torch.no_grad()
def test_a_layer_equals_a_loop_over_tokens(make, case):
    model = make(**case)
    x = torch.randn(2, 7, 20, dtype=torch.float64)
    for block in model.layers:
        wanted = torch.stack([by_loop(block.attn, model.cfg, row) for row in x])
        torch.testing.assert_close(block.attn(x), wanted, atol=1e-12, rtol=1e-10)


@EACH
def test_its_parameters_beside_vanillas_and_their_start(make_config, name):
    model, vanilla = Transformer(make_config(attention=name)), Transformer(make_config())
    own = dict(model.named_parameters())
    assert all(torch.equal(weight, own[shared]) for shared, weight in vanilla.named_parameters())
    assert model.n_params - vanilla.n_params == 2 * 2 * (GATES[name] * (20 + 1) + 1)
    assert not model.decayed_parameters() - vanilla.decayed_parameters()
    for block in model.layers:
        torch.testing.assert_close(F.softplus(block.attn.write(torch.ones(1, 1, 20))), torch.ones(1, 1, 2))
        assert ((block.attn.log_rate > math.log(0.001)) & (block.attn.log_rate < math.log(0.1))).all()
    assert not torch.equal(model.layers[0].attn.log_rate, model.layers[1].attn.log_rate)


# What they reduce to


@torch.no_grad()
def alike(model, other):
    """Give `other` the weights of `model` where both have them."""
    given = dict(model.named_parameters())
    for name, weight in other.named_parameters():
        if name in given:
            weight.copy_(given[name])


def hooks(**values):
    """Return hooks that set the gates of every layer to a value."""

    def setting(value):
        return lambda gate, hook: torch.full_like(gate, value)

    return [(f"blocks.{i}.attn.hook_{name}", setting(value)) for i in range(2) for name, value in values.items()]


@torch.no_grad()
def test_with_gates_of_1_and_no_convolution_it_is_linear_attention(make, tokens):
    """z = the sum over earlier tokens of (q . k) v, for queries and keys of length 1."""
    model = make(attention="gated_linear")
    with model.hooks(fwd_hooks=hooks(log_decay=0.0, write=1.0)):
        _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        q, k = (F.normalize(cache[f"blocks.{layer}.attn.hook_rot_{part}"], dim=-1) for part in "qk")
        k, v = (part.repeat_interleave(2, dim=2) for part in (k, cache["v", layer]))
        wanted = torch.einsum("bqhd,bkhd,bkhe->bkqhe", q, k, v)
        earlier = torch.ones(9, 9, dtype=torch.float64).triu()[None, :, :, None, None]
        torch.testing.assert_close(cache["z", layer], (wanted * earlier).sum(dim=1), atol=1e-12, rtol=0)


@torch.no_grad()
def test_the_trapezoid_with_a_second_weight_of_0_is_the_gated_linear_recurrence(make, tokens):
    model, euler = make(attention="trapezoid"), make(attention="gated_linear")
    alike(model, euler)
    assert (model(tokens) - euler(tokens)).abs().max() > 1e-3
    trapezoid = model.run_with_hooks(tokens, fwd_hooks=hooks(trapezoid=1.0))
    torch.testing.assert_close(trapezoid, euler(tokens), atol=1e-12, rtol=0)


@pytest.fixture
def one_hot():
    """Six tokens that are one-hot in their first six channels [2, 6, 20]."""
    return torch.eye(6, 20, dtype=torch.float64).expand(2, -1, -1)


def fix_gates(attn, write, log_decay):
    """Set b and log a of a layer."""
    attn.hook_write.add_hook(lambda gate, hook: torch.full_like(gate, write))
    attn.hook_log_decay.add_hook(lambda gate, hook: torch.full_like(gate, log_decay))


@torch.no_grad()
def test_the_delta_rule_on_orthogonal_keys_is_the_gated_linear_recurrence(make, one_hot):
    delta, linear = (make(attention=name, positional="none").layers[0].attn for name in ("gated_delta", "gated_linear"))
    alike(delta, linear)
    for attn in (delta, linear):
        attn.k_proj.weight.copy_(torch.eye(6, 20).repeat(2, 1))
        fix_gates(attn, 0.7, -0.2)
    torch.testing.assert_close(delta(one_hot), linear(one_hot), atol=1e-12, rtol=0)
    for attn in (delta, linear):
        attn.k_proj.weight.normal_()
    assert (delta(one_hot) - linear(one_hot)).abs().max() > 1e-3


@torch.no_grad()
def test_the_delta_rule_on_one_key_holds_the_last_value_alone(make, one_hot):
    attn, seen = make(attention="gated_delta", positional="none").layers[0].attn, {}
    attn.k_proj.weight.fill_(1)
    fix_gates(attn, 1.0, 0.0)
    attn.hook_kernel.add_hook(lambda kernel, hook: seen.update(kernel=kernel))
    attn(one_hot)
    assert seen["kernel"].tril(-1).abs().max() < 1e-12
    assert (seen["kernel"].diagonal(dim1=-2, dim2=-1) != 0).all()


# What the tools say of them


@EACH
@torch.no_grad()
def test_the_kernel_says_what_is_read(make, tokens, name):
    _, cache = make(attention=name).run_with_cache(tokens)
    for layer in range(2):
        kernel, v = cache[f"blocks.{layer}.attn.hook_kernel"], cache["v", layer].repeat_interleave(2, dim=2)
        torch.testing.assert_close(torch.einsum("bhqk,bkhd->bqhd", kernel, v), cache["z", layer])
        assert not kernel.triu(1).any()
    _, cut = make(attention=name).run_with_cache(tokens, pos_slice=(2, 5))
    torch.testing.assert_close(cut["blocks.1.attn.hook_kernel"], kernel[:, :, 2:5])


@EACH
def test_what_asks_for_a_pattern_says_that_there_is_none(make, tokens, name):
    model = make(attention=name)
    _, cache = model.run_with_cache(tokens)
    for ask in (lambda: raw_patterns(cache), lambda: head_scores(model, length=12, rows=2)):
        with pytest.raises(ConfigError, match=r"has no HookPoint hook_pattern\. Its hook_kernel says what heads read"):
            ask()
    with pytest.raises(ConfigError, match=f"'{name}', whose scores are not one sum"):
        score_routes(cache, 0)
    with pytest.raises(ConfigError, match=f"attention='{name}', a recurrence: its heads have no pattern"):
        without_key_path(model, tokens, [(0, 0)], (1, 0))
    with pytest.raises(ConfigError, match=f"attention='{name}': a norm stands between"):
        qk_circuit(model, 0, 0)


@EACH
@torch.no_grad()
def test_what_replaces_activations_works(make, tokens, name):
    model = make(attention=name)
    assert ov_circuit(model, 0, 1).AB.shape == (20, 20)
    assert (path_patch(model, tokens, tokens.flip(1), (0, 1), (1, 3), "k") - model(tokens)).abs().max() > 1e-6
    hook = ("blocks.0.attn.hook_write", lambda gate, hook: 0 * gate)
    assert (model.run_with_hooks(tokens, fwd_hooks=[hook]) - model(tokens)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"positional": "alibi"},
            "positional is 'alibi'.*'gated_delta' is a recurrence.*'rope' or 'learned' or 'none'",
        ),
        ({"mask": "strict"}, "mask is 'strict'.*must be 'causal'"),
        ({"qk_norm": True}, "qk_norm is True.*must be False"),
    ],
)
def test_fields_that_say_something_of_scores_are_refused(make_config, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(attention="gated_delta", **changes)
