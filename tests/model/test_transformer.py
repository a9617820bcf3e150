"""The whole model: initialisation, size, switches, refusals."""

import pytest
import torch
from jaxtyping import TypeCheckError

from ihlab.model.config import GPT2, ModelConfig
from ihlab.model.transformer import Transformer
from tasks import ConfigError

# Initialisation


@pytest.mark.parametrize("tied", [False, True])
def test_stored_runs_can_be_started_anew(make_config, tied):
    """Every weight, in this order, from one stream of normal numbers. Another order would change
    what a seed means.
    """
    generator = torch.Generator().manual_seed(5)
    drawn = {"embed": torch.empty(19, 20).normal_(std=20**-0.5 if tied else 1, generator=generator)}
    heads = {"q_proj": (24, 20), "k_proj": (12, 20), "v_proj": (12, 20), "o_proj": (20, 24)}
    neurons = {"gate_proj": (14, 20), "in_proj": (14, 20), "out_proj": (20, 14)}
    for layer in range(2):
        for part, shapes in (("attn", heads), ("mlp", neurons)):
            for name, shape in shapes.items():
                weight = torch.empty(shape).normal_(std=shape[1] ** -0.5, generator=generator)
                drawn[f"blocks.{layer}.{part}.{name}"] = weight
    drawn["unembed"] = torch.empty(19, 20).normal_(std=20**-0.5, generator=generator)
    if tied:
        drawn["embed"] = drawn["unembed"]  # drawn twice, the second time kept
    model = Transformer(make_config(tied_embeddings=tied), seed=5)
    for name, weight in drawn.items():
        assert torch.equal(model.get_submodule(name).weight, weight), name
    assert len(model.state_dict()) == len(drawn) + 5  # the norms


WIDE = {
    "n_layers": 1,
    "d_model": 64,
    "n_heads": 4,
    "d_head": 25,
    "d_mlp": 144,
    "d_vocab": 300,
    "n_ctx": 4,
}


LEARNED = {"positional": "learned", "n_ctx": 300}
IN_ATTENTION, IN_MLP = "blocks.0.attn.o_proj", "blocks.0.mlp.out_proj"
WIDE_STD = {
    "learned positions": (LEARNED, {"pos_embed": 1, IN_ATTENTION: 1 / 10, IN_MLP: 1 / 12}),
    "learned positions, tied": (
        {**LEARNED, "tied_embeddings": True},
        {"embed": 1 / 8, "pos_embed": 1 / 8},
    ),
    "init_std": (
        {**LEARNED, "init_std": 0.02},
        dict.fromkeys(["embed", "pos_embed", IN_ATTENTION, IN_MLP, "unembed"], 0.02),
    ),
    "scaled_residual_init, one layer": (
        {"scaled_residual_init": True},
        {"embed": 1, IN_ATTENTION: 200**-0.5, IN_MLP: 288**-0.5},
    ),
}


@pytest.mark.parametrize(("fields", "widths"), WIDE_STD.values(), ids=WIDE_STD)
def test_weights_start_normal_with_the_documented_width(fields, widths):
    model = Transformer(ModelConfig(**{**WIDE, "positional": "none", **fields}))
    for name, std in widths.items():
        weight = model.get_submodule(name).weight
        assert abs(weight.mean().item()) < 0.05 * std
        assert weight.std().item() == pytest.approx(std, rel=0.05)


# Refusals


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([0, -100, 40], "Token id -100 is outside the vocabulary: ids run from 0 to 18."),
        ([1] * 13, "The tokens have 13 positions, but the model's n_ctx is 12."),
    ],
    ids=["outside", "long"],
)
def test_tokens_that_do_not_fit_are_refused(make_model, row, said):
    with pytest.raises(ConfigError) as refusal:
        make_model()(torch.tensor([row]))
    assert str(refusal.value) == said


def test_shapes_are_checked_in_tests(make_model):
    """The import hook of tests/conftest.py is at work."""
    with pytest.raises(TypeCheckError):
        make_model().final_residual(torch.tensor([1, 2, 3]))


# What weight decay acts on

MATRICES = ("embed", "unembed", "_proj")
"""Ends of the names of the modules whose weights are matrices that learn features."""


@pytest.mark.parametrize(
    "change",
    [
        {**GPT2, "attention": "qkv_shift", "canon": "ACD"},
        {"stream_shift": "added", "canon": "ABCD", "unembedding": "none", "d_model": 24},
        {"attention": "kv_shift", "tied_embeddings": True},
    ],
    ids=str,
)
def test_weight_decay_acts_on_matrices_alone(make_config, change):
    sizes = {"n_key_value_heads": 4, "d_head": 8}  # which all variants can have
    model = Transformer(make_config(**sizes, **change))
    wanted = {
        name
        for name, _ in model.named_parameters()
        if name.endswith(tuple(f"{m}.weight" for m in MATRICES))
    }
    assert model.decayed_parameters() == wanted
    assert all(model.get_parameter(name).ndim == 2 for name in wanted)


# What a caller may give


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([[1, 2, 3], [4, 5]], "sequences of one length"),
        (torch.zeros(1, 5), "The tokens are torch.float32, but must be whole numbers"),
        (
            torch.zeros(1, 5, 2, dtype=torch.int64),
            r"the shape \[1, 5, 2\], but must be \[batch, pos\]",
        ),
        ([], "must be whole numbers|there is none to read"),
    ],
)
def test_ids_that_do_not_fit_say_why(make_model, tokens, sentence):
    model = make_model()
    for call in (model, model.run_with_cache, lambda ids: model(ids, return_type="loss")):
        with pytest.raises(ConfigError, match=sentence):
            call(tokens)


def test_padding_behind_the_tokens_changes_nothing_and_is_in_no_loss(make_model, tokens):
    model = make_model()
    padded = torch.cat([tokens, torch.zeros(3, 3, dtype=torch.int64)], dim=1)
    mask = torch.ones_like(padded)
    mask[:, 9:] = 0
    torch.testing.assert_close(model(padded, attention_mask=mask)[:, :9], model(tokens))
    torch.testing.assert_close(
        model(padded, return_type="loss", attention_mask=mask), model(tokens, return_type="loss")
    )
    with pytest.raises(ConfigError, match="padding before a token"):
        model(padded, attention_mask=mask.flip(1))
    with pytest.raises(ConfigError, match="attention_mask has the shape"):
        model(padded, attention_mask=mask[:, :5])


def test_a_misspelt_hook_point_is_named(make_model, tokens):
    model, right = make_model(), "blocks.0.attn.hook_pattern"
    hook = ("blocks.0.attn.hook_patern", lambda x, hook: x)
    for call in (
        lambda: model.run_with_hooks(tokens, fwd_hooks=[hook]),
        lambda: model.run_with_hooks(tokens, bwd_hooks=[hook]),
        lambda: model.add_hook(*hook),
    ):
        with pytest.raises(ConfigError, match=f"There is no hook point .*did you mean '{right}'"):
            call()
    for wrong in (hook[0], [hook[0]]):
        with pytest.warns(
            UserWarning, match=f"names_filter: There is no hook point .*did you mean '{right}'"
        ):
            assert not model.run_with_cache(tokens, names_filter=wrong)[1].cache_dict
    with pytest.warns(UserWarning, match="names_filter is true for no hook point"):
        model.run_with_cache(tokens, names_filter=lambda name: name.endswith("patern"))
    assert list(model.run_with_cache(tokens, names_filter=right)[1].cache_dict) == [right]
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
