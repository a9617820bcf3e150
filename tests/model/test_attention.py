"""Attention: when the fused kernel runs, what it shows of its weights, and dropout."""

import pytest
import torch

from ihlab.model.attention import Attention


def listen(point):
    """A hook that changes nothing."""
    point.add_hook(lambda tensor, hook: None)


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


def test_weights_are_shown_in_the_layout_of_transformer_lens(make_config):
    cfg = make_config()
    attn = Attention(cfg)
    x, seen = torch.randn(3, 9, 20), {}
    for name in ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result"):
        getattr(attn, name).add_hook(lambda tensor, hook, name=name: seen.update({name: tensor}))
    attn(x)
    for head in range(4):
        torch.testing.assert_close(seen["hook_q"][:, :, head], x @ attn.W_Q[head])
        torch.testing.assert_close(
            seen["hook_result"][:, :, head], seen["hook_z"][:, :, head] @ attn.W_O[head]
        )
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


# Dropout


def dropped_pattern(attn, x, explicit):
    """What multiplies the values, seen by giving each key a value of its own: z is then the pattern
    itself.
    """
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
    """Entries are 0 with the chance `rate` (to five standard errors), else the pattern's over 1 -
    rate.
    """
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
