"""The attentions that only studies of variants compare: each where it equals a simpler one, and its formula
beyond that.
"""

import pytest
import torch
from torch import nn

import figures.variants.study  # noqa: F401  # registers the attentions
from ihlab import ModelConfig, Transformer

SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_vocab": 11, "n_ctx": 9}
TOKENS = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))


def made(attention, **fields):
    """A model in float64 with this attention."""
    return Transformer(ModelConfig(**{**SIZES, "attention": attention, **fields})).double().eval()


def alike(model, other):
    torch.testing.assert_close(model(TOKENS), other(TOKENS), atol=1e-10, rtol=0)


@torch.no_grad()
def test_rwkvs_shift_and_primers_convolutions_without_earlier_tokens_are_vanilla_attention():
    rwkv, primer = made("rwkv_shift"), made("mdha")
    mu = [rwkv.blocks[1].attn.input_shift[side].mu[4].item() for side in ("query", "key", "value")]
    assert mu == pytest.approx([1 - 0.25**0.25, 1 - 0.25**0.5, 1 - 0.25**0.5 - 0.3])
    assert primer.blocks[0].attn.convolution["query"].weight[0, :, 0].tolist() == pytest.approx(
        [1 / 2, 1 / 6, 1 / 6]
    )
    for block in (*rwkv.blocks, *primer.blocks):
        for shift in getattr(block.attn, "input_shift", {}).values():
            shift.mu.zero_()
        for convolution in block.attn.convolution.values():
            convolution.weight.zero_()[:, 0] = 1
    alike(rwkv, made("vanilla"))
    alike(primer, made("vanilla"))


@torch.no_grad()
def test_latent_attention_shares_the_rotated_channels_and_its_shift_moves_one_key_and_one_value():
    plain, shifted = made("mla_4"), made("mla_kv_4")
    shifted.load_state_dict(plain.state_dict())
    (_, one), (_, other) = (model.run_with_cache(TOKENS) for model in (plain, shifted))
    attn, x = plain.blocks[0].attn, one["normalized", 0, "ln1"]
    assert attn.kv_down.weight.shape == (4, 16)
    own = attn.k_up(attn.kv_down(x)).unflatten(-1, (2, 4))
    shared = attn.k_rope(x)[:, :, None].expand(-1, -1, 2, -1)
    torch.testing.assert_close(one["k", 0], torch.cat([own, shared], dim=-1))
    torch.testing.assert_close(one["rot_k", 0][..., :4], own)  # only the shared channels turn
    key, value = one["k", 0].clone(), one["v", 0].clone()
    for of_one_head in (key[:, :, 0, :4], value[:, :, 1]):
        of_one_head[:] = nn.functional.pad(of_one_head[:, :-1], (0, 0, 1, 0))
    torch.testing.assert_close(other["k", 0], key)
    torch.testing.assert_close(other["v", 0], value)
    assert made("mla").blocks[0].attn.kv_down.weight.shape == (5, 16)  # a third of d_model
