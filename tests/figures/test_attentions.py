"""The attentions that only the zoo compares: each where it equals a simpler one, and its formula
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
def test_a_gate_of_the_input_starts_as_the_gate_and_differs_between_tokens_later():
    model = made("input_gate")
    alike(model, made("kv_gate"))
    model.blocks[0].attn.input_gate["key"].weight.normal_()
    _, cache = model.run_with_cache(TOKENS)
    raw = model.blocks[0].attn.k_proj(cache["normalized", 0, "ln1"]).unflatten(-1, (2, -1))
    gate = cache["blocks.0.attn.hook_key_gate"][:, 1:, :, None]
    wanted = gate * raw[:, 1:] + (1 - gate) * raw[:, :-1]
    torch.testing.assert_close(cache["k", 0][:, 1:], wanted)
    assert gate.std(dim=1).min() > 0.01


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
def test_selective_attention_subtracts_what_earlier_queries_selected():
    model = made("selective", n_layers=1, positional="none")
    _, cache = model.run_with_cache(TOKENS)
    selection = cache["blocks.0.attn.hook_selection"]
    q, k = cache["q", 0], cache["k", 0]
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5
    first = scores[:, 0].relu().tril(-1)
    first[:, :, 0] = 0  # the first token is exempt
    torch.testing.assert_close(selection, first)
    hidden = torch.stack([first[:, :t].sum(dim=1) for t in range(9)], dim=1)
    seen = torch.ones(9, 9).tril().bool()
    wanted = (scores - hidden[:, None]).masked_fill(~seen, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(cache["pattern", 0], wanted)


@torch.no_grad()
def test_differential_attention_is_the_normalised_difference_of_two_patterns():
    model = made("differential", positional="none")
    _, cache = model.run_with_cache(TOKENS)
    attn, seen = model.blocks[1].attn, torch.ones(9, 9).tril().bool()
    start = 0.8 - 0.6 * torch.exp(torch.tensor(-0.3)).item()
    weight = (
        (attn.lambda_q1 @ attn.lambda_k1).exp() - (attn.lambda_q2 @ attn.lambda_k2).exp() + start
    )
    patterns = []
    for half in (slice(0, 4), slice(4, 8)):
        q, k = cache["q", 1][..., half], cache["k", 1][..., half]
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 4**0.5
        patterns.append(scores.masked_fill(~seen, -torch.inf).softmax(dim=-1))
    z = torch.einsum("bhqk,bkhd->bqhd", patterns[0] - weight * patterns[1], cache["v", 1])
    scale = (z.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(cache["z", 1], (1 - start) * z / scale)
    alike(model, made("differential", positional="none"))  # and so without hooks


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
