"""Which attention can do induction in one layer: weights that do it exactly, and why attention to tokens alone cannot.

A row is a start token, other tokens once each in any order, and one of them again. The answer is the token after its
first occurrence. `test_one_layer.py` has the recurrences.
"""

import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.model.variants.multi_token import KEYS

VOCAB, SHARP = 16, 60.0

KEY_OF_THE_TOKEN_BEFORE = {
    "k_shift": {"attention": "k_shift"},
    "k_shift, first own": {"attention": "k_shift", "shift_first": "own"},
    "key_offset": {"attention": "key_offset", "d_head": 2 * VOCAB, "positional": "rope"},
    "conv K": {"canon": "K"},
    "conv K, V, O, M": {"canon": "KVOM", "mlp": "gelu"},
    "multi_token": {"attention": "multi_token"},
    "dynamic_conv": {"attention": "dynamic_conv"},
    "interpolation": {"smear": "interpolation", "d_model": 2 * VOCAB, "d_head": VOCAB},
}
"""Variants of which it is predicted that one layer learns induction."""


def rows(n):
    """Return rows of induction and their answers."""
    others = torch.stack([1 + torch.randperm(VOCAB - 1) for _ in range(n)])
    at = torch.randint(VOCAB - 2, (n, 1))
    start = torch.zeros(n, 1, dtype=torch.int64)
    return torch.cat([start, others, others.gather(1, at)], dim=1), others.gather(1, at + 1)[:, 0]


@torch.no_grad()
@pytest.mark.parametrize("name", KEY_OF_THE_TOKEN_BEFORE)
def test_a_key_of_the_token_before_and_a_value_of_its_own_do_it_exactly(name):
    """Queries, keys and values are the one-hot tokens. Partial key offset does it behind rotary positions, too."""
    fields = {
        "n_layers": 1, "d_model": VOCAB, "n_heads": 1, "d_vocab": VOCAB, "n_ctx": VOCAB + 1, "positional": "none",
        "norm": "none", "mlp": "none", "residual": False, "unembedding": "none", **KEY_OF_THE_TOKEN_BEFORE[name],
    }  # fmt: skip
    if fields["mlp"] == "gelu":
        fields["residual"] = True  # otherwise nothing but the MLP would reach the logits
    model = Transformer(ModelConfig(**fields)).double()
    for weight in model.parameters():
        weight.zero_()
    attn, d_head = model.layers[0].attn, model.cfg.head_width
    model.embed.weight.copy_(torch.eye(VOCAB).repeat(1, model.cfg.d_model // VOCAB))
    # The channels that a partial key offset takes from the token before: the second and fourth quarter of a head.
    quarter, order = VOCAB // 2, torch.arange(VOCAB)
    channel = order if d_head == VOCAB else quarter + order + order // quarter * quarter
    attn.q_proj.weight[channel, order] = SHARP * d_head**0.5
    size = 3 if name == "dynamic_conv" else 1
    attn.k_proj.weight[channel, order + model.cfg.d_model - VOCAB] = size  # the last channels have the token before
    attn.v_proj.weight[order, order] = size
    attn.o_proj.weight[order, order] = 1
    if attn.key_shift is not None:
        attn.alpha[:] = torch.tensor([0.0, 1.0])
    if "key" in attn.convolution:
        attn.convolution["key"].weight[:, 0], attn.convolution["key"].weight[:, 1] = -1, 1
    if name == "multi_token":
        attn.taps[:, 0, KEYS // 2 + 1] = 1
    if name == "dynamic_conv":
        attn.dynamic["key"].weight[:, 0], attn.dynamic["key"].weight[:, 1] = -1, 1
    if name == "interpolation":
        model.smear.weight.copy_(torch.tensor([-100.0, 100.0]).repeat_interleave(VOCAB))
    inputs, answers = rows(100)
    wanted = torch.nn.functional.one_hot(answers, VOCAB).double()
    if model.cfg.residual:
        wanted += torch.eye(VOCAB)[inputs[:, -1]]
    torch.testing.assert_close(model(inputs)[:, -1], wanted, atol=1e-12, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["vanilla", "output_gate"])
def test_without_positions_attention_to_tokens_alone_sees_no_order(attention):
    """Whatever the weights, norm and MLP included, earlier tokens in another order give the same logits at the end."""
    cfg = ModelConfig(
        n_layers=1, d_model=20, n_heads=2, d_vocab=VOCAB, n_ctx=VOCAB + 1, positional="none", attention=attention
    )
    model = Transformer(cfg).double()
    for weight in model.parameters():
        weight.normal_()
    inputs, _ = rows(20)
    shuffled = torch.cat([inputs[:, :1], inputs[:, 1:-1].flip(1), inputs[:, -1:]], dim=1)
    torch.testing.assert_close(model(shuffled)[:, -1], model(inputs)[:, -1], atol=1e-9, rtol=0)
