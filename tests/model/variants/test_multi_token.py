"""Multi-token attention: it starts as vanilla attention, and a head built by hand."""

import pytest
import torch


@pytest.fixture
def make(make):
    """Models with this attention, in float64."""
    return lambda **changes: make(**{"attention": "multi_token", **changes})


@torch.no_grad()
def test_it_starts_as_vanilla_attention(make_model, tokens):
    vanilla = make_model().double()
    model = make_model(attention="multi_token").double()
    torch.testing.assert_close(model(tokens), vanilla(tokens), atol=1e-12, rtol=0)


@torch.no_grad()
def test_a_hook_sets_the_kernel(make, make_model, tokens):
    model = make()
    for block in model.layers:
        block.attn.taps.normal_()

    def identity(taps, hook):
        taps.zero_()[:, 0, 5] = 1
        return taps

    names = [f"blocks.{layer}.attn.hook_taps" for layer in range(2)]
    out = model.run_with_hooks(tokens, fwd_hooks=[(name, identity) for name in names])
    torch.testing.assert_close(out, make_model().double()(tokens), atol=1e-12, rtol=0)
    assert model.run_with_cache(tokens, pos_slice=2)[1][names[0]].shape == (4, 6, 11)
