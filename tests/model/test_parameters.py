"""What an option adds to the parameters of a model with vanilla attention: how many, and no other
first weights.
"""

import pytest
import torch

from ihlab import Transformer

ADDED = {
    "kv_shift": ({}, 2 * 4 * 2),
    "kv_gate": ({}, 2 * 4),
    "kv_sum1, window 3": ({"attention": "kv_sum1", "shift_window": 3}, 2 * 4 * 2),
    "key_offset": ({"attention": "key_offset", "d_head": 8}, 0),
    "canon B": ({"canon": "B"}, 2 * 4 * 8 * 6),
    "canon D, GELU": ({"canon": "D", "mlp": "gelu"}, 2 * 4 * 14),
    "stream added": ({"stream_shift": "added"}, 2 * 20),
    "smeared embedding": ({"smear": "embedding"}, 12 + 1),
}
"""With two layers, d_model 20, d_mlp 14, and four query heads and two key/value heads of width 6.
"""

ADDING = ("attention", "stream_shift", "canon", "smear")


@pytest.mark.parametrize("name", ADDED)
def test_an_option_adds_its_parameters_alone_and_none_of_them_decays(make_config, name):
    fields, added = ADDED[name]
    fields = fields or {"attention": name}
    vanilla = Transformer(
        make_config(**{field: value for field, value in fields.items() if field not in ADDING})
    )
    model = Transformer(make_config(**fields))
    assert model.n_params - vanilla.n_params == added
    own = dict(model.named_parameters())
    assert all(torch.equal(weight, own[name]) for name, weight in vanilla.named_parameters())
    assert model.decayed_parameters() == vanilla.decayed_parameters()
