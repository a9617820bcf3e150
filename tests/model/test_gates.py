"""Forgetting attention and output gates against a loop over tokens, and against the attention that they reduce to."""

import math

import pytest
import torch

from ihlab import Transformer
from ihlab.interp.heads import head_scores
from ihlab.interp.patterns import score_routes
from tasks import ConfigError

CASES = {
    "forgetting": {"attention": "forgetting"},
    "forgetting, strict, no positions": {"attention": "forgetting", "mask": "strict", "positional": "none"},
    "forgetting, ALiBi, a head each": {"attention": "forgetting", "positional": "alibi", "n_key_value_heads": 4},
    "output gate": {"attention": "output_gate"},
    "output gate, no positions": {"attention": "output_gate", "positional": "none"},
}
PARAMETERS = {"forgetting": 4 * (20 + 1), "output_gate": 4 * 6 * (20 + 1)}


@pytest.fixture
def make(make_model):
    """Models in float64, with gates that depend on the token."""

    def moved(**changes):
        model = make_model(**changes).double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if ".forget." in name or ".out_gate." in name:
                    weight.normal_(generator=generator)
        return model

    return moved


def by_loop(attn, cfg, x):
    """Attention of one layer by the equations of the modules: x [pos, d_model] to [pos, d_model]."""
    d, group, out = cfg.head_width, cfg.n_heads // cfg.kv_heads, torch.zeros_like(x)

    def rotated(y, t):
        return y if attn.rotary is None else attn.rotary(y[None, None, None], slice(t, t + 1))[0, 0, 0]

    def sigmoid(part, row, t):
        return 1 / (1 + torch.exp(-(part.weight[row] @ x[t] + part.bias[row])))

    def score(h, t, s):
        slope = 2.0 ** (-8 * (h + 1) / 4) if cfg.positional == "alibi" else 0.0
        q, k = rotated(x[t] @ attn.W_Q[h], t), rotated(x[s] @ attn.W_K[h // group], s)
        kept = [sigmoid(attn.forget, h, i).log() for i in range(s + 1, t + 1)] if cfg.attention == "forgetting" else []
        return q @ k / math.sqrt(d) - slope * (t - s) + sum(kept)

    for h in range(cfg.n_heads):
        for t in range(len(x)):
            seen = range(t if cfg.mask == "strict" else t + 1)
            if not seen:
                continue
            pattern = torch.stack([score(h, t, s) for s in seen]).softmax(dim=0)
            z = sum(weight * x[s] @ attn.W_V[h // group] for weight, s in zip(pattern, seen, strict=True))
            if cfg.attention == "output_gate":
                z = z * torch.stack([sigmoid(attn.out_gate, h * d + channel, t) for channel in range(d)])
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


@pytest.mark.parametrize("name", PARAMETERS)
def test_its_parameters_beside_vanillas_and_their_start(make_config, name):
    model, vanilla = Transformer(make_config(attention=name)), Transformer(make_config())
    own = dict(model.named_parameters())
    assert all(torch.equal(weight, own[shared]) for shared, weight in vanilla.named_parameters())
    assert model.n_params - vanilla.n_params == 2 * PARAMETERS[name]
    gates = [weight for shared, weight in own.items() if ".forget." in shared or ".out_gate." in shared]
    assert len(gates) == 4
    assert not any(weight.any() for weight in gates)
    assert not model.decayed_parameters() - vanilla.decayed_parameters()


@torch.no_grad()
def alike(model, other):
    """Give `other` the weights of `model` where both have them."""
    given = dict(model.named_parameters())
    for name, weight in other.named_parameters():
        weight.copy_(given[name])


def set_everywhere(hook, value):
    """Return hooks that set a gate to a value in both layers."""
    return [(f"blocks.{layer}.attn.{hook}", lambda gate, hook: torch.full_like(gate, value)) for layer in range(2)]


@pytest.mark.parametrize(
    ("name", "hook", "open_"), [("forgetting", "log_forget", 0.0), ("output_gate", "out_gate", 1.0)]
)
def test_with_gates_of_1_it_is_vanilla_attention(make, tokens, name, hook, open_):
    model, vanilla = make(attention=name), make()
    alike(model, vanilla)
    assert (model(tokens) - vanilla(tokens)).abs().max() > 1e-3
    opened = model.run_with_hooks(tokens, fwd_hooks=set_everywhere(f"hook_{hook}", open_))
    torch.testing.assert_close(opened, vanilla(tokens), atol=1e-12, rtol=0)


def test_with_one_constant_gate_it_is_alibi(make, tokens):
    """With the slope -log f."""
    model = make(attention="forgetting", positional="none")
    alibi = make(positional="alibi", alibi_slopes=(0.3, 0.3, 0.3, 0.3))
    alike(model, alibi)
    constant = model.run_with_hooks(tokens, fwd_hooks=set_everywhere("hook_log_forget", -0.3))
    torch.testing.assert_close(constant, alibi(tokens), atol=1e-12, rtol=0)


def test_a_gate_of_0_forgets_all_before(make, tokens):
    """Logits of one layer then do not depend on tokens before it."""
    model, changed = make(attention="forgetting", n_layers=1), tokens.clone()
    changed[:, :5] = (changed[:, :5] + 1) % 19

    def closed(gate, hook):
        gate[:, 5] = -1e9
        return gate

    one, other = (
        model.run_with_hooks(each, fwd_hooks=[("blocks.0.attn.hook_log_forget", closed)]) for each in (tokens, changed)
    )
    torch.testing.assert_close(one[:, 5:], other[:, 5:], atol=1e-6, rtol=0)
    assert (one[:, :5] - other[:, :5]).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("name", PARAMETERS)
def test_its_pattern_says_what_is_read(make, tokens, name):
    model = make(attention=name)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        v = cache["v", layer].repeat_interleave(2, dim=2)
        read = torch.einsum("bhqk,bkhd->bqhd", cache["pattern", layer], v)
        torch.testing.assert_close(read, cache["z" if name == "forgetting" else "z_raw", layer, "attn"])
        torch.testing.assert_close(cache["attn_scores", layer].softmax(dim=-1), cache["pattern", layer])
        torch.testing.assert_close(cache["result", layer, "attn"].sum(dim=2), cache["attn_out", layer])
    assert head_scores(model, length=12, rows=2).notna().all(axis=None)


def test_scores_with_forget_gates_are_no_sum_over_routes(make, tokens):
    _, cache = make(attention="forgetting").run_with_cache(tokens)
    with pytest.raises(ConfigError, match="'forgetting', whose scores are not one sum"):
        score_routes(cache, 0)
