"""GPT-2 blocks against Hugging Face's: two implementations, one set of weights."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ihlab.model.config import GPT2
from ihlab.model.conversion import from_gpt2, to_gpt2
from tasks import ConfigError

SHAPES = pytest.mark.parametrize("shape", [{}, {"tied_embeddings": True}, {"eps": 0.1}], ids=str)


@pytest.fixture(scope="session")
def make_gpt2_like(make_model):
    """Models that GPT-2 can express; their norm weights are not 1 and biases not 0."""

    def make(**changes):
        return make_model(**{"n_key_value_heads": 4, "d_head": 5, **GPT2, **changes})

    return make


def rows(cfg):
    """Tokens in every position, and every token."""
    return torch.randint(cfg.d_vocab, (4, cfg.n_ctx), generator=torch.Generator().manual_seed(2))


def assert_same_gradients(model, gpt2, ours, theirs):
    """Of one weighted sum of the logits, by every weight."""
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3), dtype=ours.dtype)
    for logits in (ours, theirs):
        (logits * weight).sum().backward()
    with (
        torch.no_grad()
    ):  # a GPT-2 whose weights are the gradients: their names and layouts are then ours to read
        for parameter in gpt2.parameters():
            parameter.copy_(parameter.grad)
    for name, expected in from_gpt2(gpt2).named_parameters():
        error = (model.get_parameter(name).grad - expected).abs().max()
        assert error < 1e-5 * max(1, expected.abs().max()), name


def gpt2_with(**changes):
    """A GPT-2 made by Hugging Face, with random weights everywhere."""
    settings = {
        "vocab_size": 19,
        "n_positions": 12,
        "n_embd": 20,
        "n_layer": 2,
        "n_head": 4,
        "layer_norm_epsilon": 1e-4,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    gpt2 = GPT2LMHeadModel(GPT2Config(**{**settings, **changes}))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in gpt2.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5)
    return gpt2


# Equality


@pytest.mark.parametrize("path", ["fused", "explicit"])
def test_dropout_falls_where_gpt2_drops(make_gpt2_like, path):
    """With one seed the two draw alike, as long as they draw in one order, for things of one shape."""
    model = make_gpt2_like(dropout=0.1).double()
    gpt2, tokens = to_gpt2(model).double().train(), rows(model.cfg)
    gpt2.set_attn_implementation("sdpa" if path == "fused" else "eager")
    if path == "explicit":
        for block in model.blocks:
            block.attn.hook_pattern.add_hook(lambda pattern, hook: None)
    torch.manual_seed(7)
    theirs = gpt2(tokens).logits
    torch.manual_seed(7)
    ours = model.train()(tokens)
    assert (ours - theirs).abs().max() < 1e-9
    assert not torch.allclose(ours, model.eval()(tokens))
    assert_same_gradients(model, gpt2, ours, theirs)


# Translation


@SHAPES
def test_there_and_back_is_the_same_model(make_gpt2_like, shape):
    """And Hugging Face's GPT-2 has its logits."""
    model = make_gpt2_like(**shape, dropout=0.25).eval()
    gpt2, tokens = to_gpt2(model).eval(), rows(model.cfg)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), gpt2(tokens).logits, atol=1e-5, rtol=1e-5)
    back = from_gpt2(gpt2)
    assert back.cfg == model.cfg
    assert back.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


# Refusals


@pytest.mark.parametrize(
    "part",
    [
        {"attention": "kv_shift"},
        {"residual": (True, False)},
        {"unembedding": "none"},
    ],
    ids=str,
)
def test_a_model_that_gpt2_cannot_express_is_refused(make_gpt2_like, part):
    (name, value), *_ = part.items()
    with pytest.raises(ConfigError, match="GPT-2") as refusal:
        to_gpt2(make_gpt2_like(**part))
    assert f"{name} is {value!r}" in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation_function": "gelu"}, "activation_function='gelu'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"attn_pdrop": 0.2}, "0.1, 0.2 and 0.1"),
    ],
    ids=["activation", "layer_scale", "dropouts"],
)
def test_a_gpt2_that_we_cannot_express_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        from_gpt2(gpt2_with(**changes))
