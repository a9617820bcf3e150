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
def test_hook_pattern_sees_the_pattern_before_dropout(make_config):
    attn = Attention(make_config(dropout=0.5)).train()
    seen = {}
    attn.hook_pattern.add_hook(lambda pattern, hook: seen.update(pattern=pattern))
    attn(torch.randn(3, 9, 20))
    torch.testing.assert_close(seen["pattern"].sum(dim=-1), torch.ones(3, 4, 9))


@torch.no_grad()
def test_weights_are_views(make_config):
    """What is written to them is in the model."""
    attn, x = Attention(make_config(bias=True)), torch.randn(3, 9, 20)
    before = attn(x)
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_V", "b_O"):
        getattr(attn, name)[0] += 1
        after = attn(x)
        assert not torch.allclose(after, before), name
        before = after
