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


@torch.no_grad()
def test_a_head_that_matches_its_own_token_reads_the_one_before(make):
    """Without positions: with a 1 at the key after, S'[t, t - 1] = S[t, t], the match of a token with itself."""
    vocab = 8
    fields = {"n_layers": 1, "d_model": vocab, "n_heads": 1, "n_key_value_heads": 1, "d_head": vocab, "d_vocab": vocab}
    model = make(**fields, positional="none", norm="none", mlp="none", residual=False, unembedding="none", n_ctx=vocab)
    attn, eye = model.layers[0].attn, torch.eye(vocab, dtype=torch.float64)
    for weight in (model.embed.weight, attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight, attn.o_proj.weight):
        weight.copy_(eye)
    attn.q_proj.weight.mul_(200)
    attn.taps.zero_()[:, 0, 4] = 1
    rows = torch.stack([torch.randperm(vocab) for _ in range(20)])
    torch.testing.assert_close(model(rows)[:, 1:], eye[rows[:, :-1]], atol=1e-12, rtol=0)
