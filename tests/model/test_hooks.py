"""What TransformerLens sees of the model: hook names, shapes, the cache and its decompositions."""

import pytest
import torch
from transformer_lens import ActivationCache

BATCH, POS, MODEL, HEADS, GROUPS, HEAD, MLP, WINDOW = 3, 9, 20, 4, 2, 6, 14, 3
STREAM = (BATCH, POS, MODEL)

ATTENTION_SHAPES = {
    "hook_q": (BATCH, POS, HEADS, HEAD),
    "hook_k": (BATCH, POS, GROUPS, HEAD),
    "hook_v": (BATCH, POS, GROUPS, HEAD),
    "hook_rot_q": (BATCH, POS, HEADS, HEAD),
    "hook_rot_k": (BATCH, POS, GROUPS, HEAD),
    "hook_attn_scores": (BATCH, HEADS, POS, POS),
    "hook_pattern": (BATCH, HEADS, POS, POS),
    "hook_z": (BATCH, POS, HEADS, HEAD),
    "hook_result": (BATCH, POS, HEADS, MODEL),
}
SHIFT_SHAPES = {
    "hook_k_raw": (BATCH, POS, GROUPS, HEAD),
    "hook_v_raw": (BATCH, POS, GROUPS, HEAD),
    "hook_alpha": (GROUPS, WINDOW),
    "hook_beta": (GROUPS, WINDOW),
}
BLOCK_SHAPES = {
    **{f"hook_{name}": STREAM for name in ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")},
    **{f"{norm}.hook_scale": (BATCH, POS, 1) for norm in ("ln1", "ln2")},
    **{f"{norm}.hook_normalized": STREAM for norm in ("ln1", "ln2")},
    **{f"mlp.{name}": (BATCH, POS, MLP) for name in ("hook_pre", "hook_pre_linear", "hook_post")},
}


def expected_shapes(attention):
    shapes = {"hook_embed": STREAM, "ln_final.hook_scale": (BATCH, POS, 1), "ln_final.hook_normalized": STREAM}
    heads = {**ATTENTION_SHAPES, **(SHIFT_SHAPES if attention == "kv_shift" else {})}
    for layer in range(2):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in BLOCK_SHAPES.items()}
        shapes |= {f"blocks.{layer}.attn.{name}": shape for name, shape in heads.items()}
    return shapes


@pytest.fixture(params=["vanilla", "kv_shift"])
def model(request, make_model):
    return make_model(attention=request.param, shift_window=WINDOW)


@pytest.fixture
def shifted(make_model):
    return make_model(attention="kv_shift", shift_window=WINDOW)


# Names


def test_every_hook_has_its_name_and_shape(model, tokens):
    _, cache = model.run_with_cache(tokens)
    assert {name: tuple(tensor.shape) for name, tensor in cache.items()} == expected_shapes(model.cfg.attention)


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ({"positional": "none"}, ["hook_rot_"]),
        ({"norm": "none"}, ["ln1.", "ln2.", "ln_final."]),
        ({"mlp": "none"}, ["mlp", "ln2.", "resid_mid"]),
    ],
    ids=["positional", "norm", "mlp"],
)
def test_a_part_switched_off_takes_its_hooks_along(make_model, tokens, switch, gone):
    _, cache = make_model(**switch).run_with_cache(tokens)
    stays = {name for name in expected_shapes("vanilla") if not any(part in name for part in gone)}
    assert set(cache.keys()) == stays


# What the activations are


def test_the_cache_is_an_activation_cache(model, tokens):
    logits, cache = model.run_with_cache(tokens)
    assert logits.shape == (BATCH, POS, 19)
    assert isinstance(cache, ActivationCache)
    assert cache["pattern", 0] is cache["blocks.0.attn.hook_pattern"]


# Parts of a cache


@pytest.mark.parametrize("n_key_value_heads", [1, 2])
def test_one_row_can_be_cached_without_its_batch_axis(make_model, tokens, n_key_value_heads):
    """hook_alpha and hook_beta have no batch axis to lose, also where their first axis is 1."""
    model = make_model(attention="kv_shift", n_key_value_heads=n_key_value_heads)
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


def test_a_heads_z_can_be_zeroed(model, tokens):
    def zero_head_1(z, hook):
        z[:, :, 1] = 0
        return z

    _, cache = model.run_with_cache(tokens)
    seen = {}
    logits = model.run_with_hooks(
        tokens,
        fwd_hooks=[
            ("blocks.1.attn.hook_z", zero_head_1),
            ("blocks.1.hook_attn_out", lambda out, hook: seen.update(attn_out=out)),
        ],
    )
    torch.testing.assert_close(seen["attn_out"], cache["attn_out", 1] - cache["result", 1, "attn"][:, :, 1])
    assert not torch.allclose(logits, model(tokens))


def test_a_pattern_can_be_replaced(model, tokens):
    """Every query attends to itself alone: then z is the value."""
    seen = {}
    model.run_with_hooks(
        tokens,
        fwd_hooks=[
            ("blocks.0.attn.hook_pattern", lambda pattern, hook: torch.eye(POS).expand_as(pattern)),
            ("blocks.0.attn.hook_v", lambda v, hook: seen.update(v=v)),
            ("blocks.0.attn.hook_z", lambda z, hook: seen.update(z=z)),
        ],
    )
    torch.testing.assert_close(seen["z"], seen["v"].repeat_interleave(HEADS // GROUPS, dim=2))


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_hook_can_override_alpha_and_beta(shifted, tokens, name):
    other = torch.randn(GROUPS, WINDOW)
    hooked = shifted.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.attn.hook_{name}", lambda weight, hook: other)])
    assert not torch.allclose(hooked, shifted(tokens))
    with torch.no_grad():
        getattr(shifted.blocks[0].attn, name).copy_(other)  # the model so changed says the same unhooked
    torch.testing.assert_close(hooked, shifted(tokens))


@torch.no_grad()
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_hook_that_edits_alpha_or_beta_in_place_does_not_edit_the_model(shifted, tokens, name):
    def forget_the_past(weight, hook):
        weight[:, 1:] = 0
        return weight

    weight = getattr(shifted.blocks[0].attn, name)
    before = weight.clone()
    shifted.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.attn.hook_{name}", forget_the_past)])
    torch.testing.assert_close(weight, before, rtol=0, atol=0)


def test_hooks_of_one_run_are_gone_in_the_next(model, tokens):
    before = model(tokens)
    model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", lambda embedded, hook: torch.zeros_like(embedded))])
    model.run_with_cache(tokens)
    assert torch.equal(model(tokens), before)


# The rest of what TransformerLens asks
