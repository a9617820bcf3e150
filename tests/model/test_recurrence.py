"""Linear recurrences against what they reduce to, how they start, and what reads their weights."""

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
from tests.model.weights import alike

NAMES = ("gated_linear", "gated_delta", "trapezoid")
EACH = pytest.mark.parametrize("name", NAMES)


@EACH
def test_it_starts_with_write_gates_of_1_and_slow_decays(make_config, name):
    model = Transformer(make_config(attention=name))
    for block in model.layers:
        torch.testing.assert_close(F.softplus(block.attn.write(torch.ones(1, 1, 20))), torch.ones(1, 1, 2))
        assert ((block.attn.log_rate > math.log(0.001)) & (block.attn.log_rate < math.log(0.1))).all()
    assert not torch.equal(model.layers[0].attn.log_rate, model.layers[1].attn.log_rate)


# What they reduce to


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
def test_the_kernel_is_causal_and_cut_along_queries(make, tokens, name):
    kernel, cut = (
        make(attention=name).run_with_cache(tokens, pos_slice=part)[1]["blocks.1.attn.hook_kernel"]
        for part in (None, (2, 5))
    )
    assert not kernel.triu(1).any()
    torch.testing.assert_close(cut, kernel[:, :, 2:5])


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
