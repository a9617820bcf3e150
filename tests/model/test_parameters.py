"""What an option adds to the parameters of a model with vanilla attention: how many, and no other first weights."""

import pytest
import torch

from ihlab import Transformer

ADDED = {
    "kv_shift": ({}, 2 * 4 * 2),
    "kv_shift, window 3": ({"attention": "kv_shift", "shift_window": 3}, 2 * 4 * 3),
    "kv_shift, one key/value head": ({"attention": "kv_shift", "n_key_value_heads": 1}, 2 * 2 * 2),
    "kv_shift, GPT-2's block": ({"attention": "kv_shift", "norm": "layer", "mlp": "gelu", "bias": True}, 2 * 4 * 2),
    "kv_shift, shared in a layer": ({"attention": "kv_shift", "shift_share": "layer"}, 2 * 2 * 2),
    "kv_shift, shared in the model": ({"attention": "kv_shift", "shift_share": "model"}, 2 * 2),
    "kv_shift, each channel its own": ({"attention": "kv_shift", "shift_share": "channel"}, 2 * 4 * 2 * 6),
    "k_shift": ({}, 2 * 2 * 2),
    "v_shift": ({}, 2 * 2 * 2),
    "qkv_shift": ({}, 2 * (4 + 4) * 2),
    "kv_gate": ({}, 2 * 4),
    "kv_sum1": ({}, 2 * 4),
    "kv_sum1, window 3": ({"attention": "kv_sum1", "shift_window": 3}, 2 * 4 * 2),
    "kv_clip": ({}, 2 * 4 * 2),
    "kv_project": ({}, 2 * 4 * 2),
    "kv_frozen": ({}, 2 * 4 * 2),
    "kv_frozen_unit": ({}, 2 * 4 * 2),
    "differential": ({"attention": "differential", "d_head": 8}, 2 * (4 * 4 + 8)),
    "selective": ({}, 0),
    "rwkv_shift": ({}, 2 * 3 * 20),
    "mdha": ({}, 2 * 3 * 8 * 6),
    "partial_rotary": ({"attention": "partial_rotary", "d_head": 8}, 0),
    "key_offset": ({"attention": "key_offset", "d_head": 8}, 0),
    "adaptive_offset": ({"attention": "adaptive_offset", "d_head": 8}, 0),
    "dynamic_conv": ({}, 2 * 4 * 4 * (6 + 20)),
    "multi_token": ({}, 2 * 4 * 6 * 11),
    "input_gate": ({}, 2 * 4 * (20 + 1)),
    "forgetting": ({}, 2 * 4 * (20 + 1)),
    "output_gate": ({}, 2 * 4 * 6 * (20 + 1)),
    "gated_linear": ({}, 2 * 2 * (20 + 1 + 1)),
    "gated_delta": ({}, 2 * 2 * (2 * (20 + 1) + 1)),
    "trapezoid": ({}, 2 * 2 * (2 * (20 + 1) + 1)),
    "delta_hybrid": ({}, 2 * (2 * (20 + 1) + 1)),
    "canon A": ({"canon": "A"}, 2 * 4 * 20),
    "canon B": ({"canon": "B"}, 2 * 4 * 8 * 6),
    "canon C": ({"canon": "C"}, 2 * 4 * 20),
    "canon D": ({"canon": "D"}, 2 * 4 * 2 * 14),
    "canon D, GELU": ({"canon": "D", "mlp": "gelu"}, 2 * 4 * 14),
    "canon KV": ({"canon": "KV"}, 2 * 4 * 4 * 6),
    "canon OM": ({"canon": "OM"}, 2 * 4 * 2 * 20),
    "canon A of two taps": ({"canon": "A", "canon_taps": 2}, 2 * 2 * 20),
    "stream before the norm": ({"stream_shift": "before_norm"}, 2 * 20),
    "stream added": ({"stream_shift": "added"}, 2 * 20),
    "smeared embedding": ({"smear": "embedding"}, 12 + 1),
    "smeared attention": ({"smear": "attention"}, 2 * (12 + 1)),
    "interpolated embedding": ({"smear": "interpolation"}, 20),
}
"""With two layers, d_model 20, d_mlp 14, and four query heads and two key/value heads of width 6."""

ADDING = ("attention", "stream_shift", "canon", "smear")


@pytest.mark.parametrize("name", ADDED)
def test_an_option_adds_its_parameters_alone_and_none_of_them_decays(make_config, name):
    fields, added = ADDED[name]
    fields = fields or {"attention": name}
    vanilla = Transformer(make_config(**{field: value for field, value in fields.items() if field not in ADDING}))
    model = Transformer(make_config(**fields))
    assert model.n_params - vanilla.n_params == added
    own = dict(model.named_parameters())
    assert all(torch.equal(weight, own[name]) for name, weight in vanilla.named_parameters())
    assert model.decayed_parameters() == vanilla.decayed_parameters()


@pytest.mark.parametrize("attention", ["mla", "mla_kv"])
@pytest.mark.parametrize(("rank", "d_head", "rope"), [(5, 6, 2), (7, 8, 4)])
def test_latent_attention_has_its_own_maps(make_config, attention, rank, d_head, rope):
    """r d + h (d_C + d_v) r + d_R d for keys and values, and the shift adds none."""
    switches = {"n_key_value_heads": 4, "n_layers": 1, "d_head": d_head}
    vanilla = Transformer(make_config(**switches)).n_params - 2 * 20 * 4 * d_head
    model = Transformer(make_config(attention=attention, mla_rank=rank, **switches))
    assert model.n_params - vanilla == rank * 20 + 4 * (d_head - rope + d_head) * rank + rope * 20
