"""Attention: when the fused kernel runs, what it shows of its weights, and dropout."""

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


@torch.no_grad()
def test_weights_are_views_in_the_layout_of_transformer_lens(make_config):
    attn, x, seen = Attention(make_config(bias=True)), torch.randn(3, 9, 20), {}
    for bias in (attn.b_Q, attn.b_K, attn.b_V, attn.b_O):
        bias.normal_()
    for name in ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result"):
        getattr(attn, name).add_hook(lambda tensor, hook, name=name: seen.update({name: tensor}))
    before = attn(x)
    for name, side in (("Q", "q"), ("K", "k"), ("V", "v")):
        weights, biases = getattr(attn, f"W_{name}"), getattr(attn, f"b_{name}")
        for head, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            torch.testing.assert_close(seen[f"hook_{side}"][:, :, head], x @ weight + bias)
    result = torch.einsum("bphd,hdm->bphm", seen["hook_z"], attn.W_O)
    torch.testing.assert_close(seen["hook_result"], result)
    torch.testing.assert_close(before, result.sum(dim=2) + attn.b_O)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name)[0] = 0
        after = attn(x)
        assert not torch.allclose(after, before)
        before = after


def test_alpha_and_beta_are_the_shifts_own_parameters(make_config):
    attn = Attention(make_config(attention="kv_shift", shift_window=3))
    assert attn.alpha is attn.key_shift.weight
    assert attn.beta is attn.value_shift.weight
    assert attn.alpha.shape == attn.beta.shape == (2, 3)


@torch.no_grad()
def test_hook_pattern_sees_the_pattern_before_dropout(make_config):
    attn = Attention(make_config(dropout=0.5)).train()
    seen = {}
    attn.hook_pattern.add_hook(lambda pattern, hook: seen.update(pattern=pattern))
    attn(torch.randn(3, 9, 20))
    torch.testing.assert_close(seen["pattern"].sum(dim=-1), torch.ones(3, 4, 9))
