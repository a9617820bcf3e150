"""What TransformerLens sees of the model: hook names, shapes, the cache and its decompositions."""

import pytest
import torch


@pytest.fixture
def shifted(make_model):
    return make_model(attention="kv_shift", shift_window=3)


# Parts of a cache


@pytest.mark.parametrize(("position", "alone"), [(None, True), (4, False)])
def test_one_row_or_one_position_can_be_cached(make_model, tokens, position, alone):
    """hook_alpha and hook_beta have no axis to lose, also where their first axis is 1. Of scores and
    pattern, the position is that of the query.
    """
    model, row = make_model(attention="kv_shift", n_key_value_heads=1), tokens[:1]
    _, cache = model.run_with_cache(row, remove_batch_dim=alone, pos_slice=position)
    _, whole = model.run_with_cache(row)
    for name in whole:
        expected = whole[name]
        if not name.endswith(("hook_alpha", "hook_beta")):
            if position is not None:
                axis = 2 if name.endswith(("scores", "pattern")) else 1
                expected = expected.narrow(axis, position, 1)
            if alone:
                expected = expected[0]
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


def test_hooks_may_come_from_an_iterator(make_model, tokens):
    model, name = make_model(), "blocks.0.attn.hook_z"

    def off(z, hook):
        return z * 0

    listed = model.run_with_hooks(tokens, fwd_hooks=[(name, off)])
    assert torch.equal(model.run_with_hooks(tokens, fwd_hooks=iter([(name, off)])), listed)
