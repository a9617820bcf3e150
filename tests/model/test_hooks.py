"""What TransformerLens sees of the model: hook names, shapes, the cache and its decompositions."""

import pytest
import torch


@pytest.fixture
def shifted(make_model):
    return make_model(attention="kv_shift", shift_window=3)


# Parts of a cache


def test_one_row_can_be_cached_without_its_batch_axis(make_model, tokens):
    """hook_alpha and hook_beta have no batch axis to lose, also where their first axis is 1."""
    model = make_model(attention="kv_shift", n_key_value_heads=1)
    row = tokens[:1]
    _, cache = model.run_with_cache(row, remove_batch_dim=True)
    _, whole = model.run_with_cache(row)
    for name, tensor in whole.items():
        expected = tensor if name.endswith(("hook_alpha", "hook_beta")) else tensor[0]
        assert cache[name].shape == expected.shape, name
        assert torch.equal(cache[name], expected), name


def test_one_position_can_be_cached(shifted, tokens):
    """Every activation at that position; of scores and pattern, that query; alpha and beta whole."""
    _, cache = shifted.run_with_cache(tokens, pos_slice=4)
    _, whole = shifted.run_with_cache(tokens)
    for name, tensor in whole.items():
        if name.endswith(("hook_alpha", "hook_beta")):
            expected = tensor
        else:
            expected = tensor[:, :, [4]] if name.endswith(("scores", "pattern")) else tensor[:, [4]]
        assert cache[name].shape == expected.shape, name
        assert torch.equal(cache[name], expected), name


# Interventions


@torch.no_grad()
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_hook_can_override_alpha_and_beta_and_does_not_edit_the_model(shifted, tokens, name):
    weight = getattr(shifted.blocks[0].attn, name)
    before = weight.clone()

    def forget_the_past(weight, hook):
        weight[:, 1:] = 0
        return weight

    hooked = shifted.run_with_hooks(
        tokens, fwd_hooks=[(f"blocks.0.attn.hook_{name}", forget_the_past)]
    )
    assert torch.equal(weight, before)
    assert not torch.allclose(hooked, shifted(tokens))
    weight[:, 1:] = 0  # the model so changed says the same unhooked
    torch.testing.assert_close(hooked, shifted(tokens))
