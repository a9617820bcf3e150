"""The vanilla model against Hugging Face's Llama: two implementations, one set of weights."""

import re

import pytest
import torch
import transformers

from ihlab.model.conversion import from_llama, to_llama
from tasks import ConfigError

SHAPES = pytest.mark.parametrize(
    "shape",
    [
        {},  # grouped queries, d_head 6 where d_model / n_heads is 5
        {"tied_embeddings": True},
        {"rotary_base": 50.0, "eps": 0.1},
    ],
    ids=["grouped", "tied", "base_and_eps"],
)


@SHAPES
@torch.no_grad()
def test_there_and_back_is_the_same_model(make_model, tokens, shape):
    """And Hugging Face's Llama has its logits."""
    model = make_model(**shape)
    llama = to_llama(model).eval()
    torch.testing.assert_close(model(tokens), llama(tokens).logits, atol=1e-5, rtol=1e-5)
    back = from_llama(llama)
    assert back.cfg == model.cfg
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


@pytest.mark.parametrize(
    "part",
    [
        {"attention": "kv_shift"},
        {"residual": (True, False)},
        {"dropout": 0.1},
    ],
    ids=str,
)
def test_a_model_that_llama_cannot_express_is_refused(make_model, part):
    [(name, value)] = part.items()
    with pytest.raises(
        ConfigError, match=rf"^The model has {name}={re.escape(repr(value))}, but Llama can only "
    ):
        to_llama(make_model(**part))


def test_a_width_that_llama_cannot_express_is_refused(make_model):
    """Hugging Face wants d_model to be a multiple of n_heads, whatever d_head is."""
    with pytest.raises(ConfigError, match="d_model"):
        to_llama(make_model(d_model=18))


# Relatives


def of_class(name, **changes):
    """A model of the family, with random weights everywhere."""
    settings = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**settings, **changes})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, **more}}


LLAMA_3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
RELATIVES = {
    "Mistral, window": {"sliding_window": 20},
    "Qwen2, tied": {"tie_word_embeddings": True},
    "Qwen3": {"head_dim": 10},
    "SmolLM3": {},
    "Llama, biases of attention": {"attention_bias": True},
    "Llama, biases of the MLP": {"mlp_bias": True},
    "Llama, linear": rope("linear", factor=4.0),
    "Llama, llama3": rope("llama3", **LLAMA_3),
    "Llama, yarn": rope("yarn", factor=4.0, original_max_position_embeddings=24),
}


@pytest.mark.parametrize("name", RELATIVES)
@torch.no_grad()
def test_a_relative_is_converted_with_its_logits(name):
    original = of_class(name.split(",")[0], **RELATIVES[name])
    model = from_llama(original)
    assert model.cfg.n_ctx == (20 if "window" in name else 96)
    tokens = torch.randint(50, (3, model.cfg.n_ctx), generator=torch.Generator().manual_seed(1))
    theirs = original.float()(tokens).logits
    assert (model(tokens) - theirs).abs().max() < 1e-5 * max(1, theirs.abs().max())
    if "SmolLM3" in name:
        assert [block.attn.rotary is None for block in model.layers] == [False, False, False, True]
    assert dict(model.special_tokens) == {"bos_token_id": 1, "eos_token_id": 2}
    scored = model.generate(tokens[:, :4], 8)  # the cache holds normalised, rotated keys
    assert torch.equal(scored[:, 4], model(tokens[:, :4])[:, -1].argmax(dim=-1))
    assert torch.equal(scored[:, 11], model(scored[:, :11])[:, -1].argmax(dim=-1))


@pytest.mark.parametrize("name", ["Qwen3", "Llama, yarn"])
@torch.no_grad()
def test_a_model_in_half_precision_is_converted_as_its_weights_in_float32(name):
    half, wide = (of_class(name.split(",")[0], **RELATIVES[name]) for _ in range(2))
    wide.load_state_dict(half.to(torch.bfloat16).state_dict())
    tokens = torch.randint(50, (3, 96), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(from_llama(half)(tokens), wide(tokens).logits, atol=1e-4, rtol=1e-4)
    assert half.dtype == torch.bfloat16


def with_bias():
    model = of_class("Llama")
    model.lm_head = torch.nn.Linear(32, 50)
    return model


def not_a_number():
    model = of_class("Llama")
    model.model.norm.weight.data[3] = torch.nan
    return model


def swapped_norms():
    """A look-alike: the class, the config and the weights' names are Llama's, the numbers are not."""
    model = of_class("Llama")
    for layer in model.model.layers:
        layer.self_attn.scaling *= 1.1
    return model


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (with_bias, r"The LlamaForCausalLM has lm_head\.bias, which a Transformer cannot hold"),
        (
            not_a_number,
            "The LlamaForCausalLM's tensor 'model.norm.weight' holds a number that is not finite",
        ),
        (swapped_norms, "cannot be converted: on random tokens the result's logits differ by"),
        (
            lambda: of_class("Llama", **rope("dynamic", factor=2.0)),
            "The LlamaForCausalLM has rope_type='dynamic', but must have one of default",
        ),
        (
            lambda: of_class("Llama", hidden_act="gelu"),
            "has hidden_act='gelu', but must have 'silu'",
        ),
        (
            lambda: of_class("Helium", head_dim=8),
            "The model is a HeliumForCausalLM, but from_llama takes Llama",
        ),
    ],
)
def test_what_only_looks_like_a_llama_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        from_llama(make())


@pytest.mark.parametrize("flag", [True, False])
def test_the_weights_decide_whether_embeddings_are_tied(flag):
    original = of_class("Llama", tie_word_embeddings=flag)
    original.config.tie_word_embeddings = not flag
    assert from_llama(original).cfg.tied_embeddings == flag


def test_special_tokens_come_back():
    back = to_llama(from_llama(of_class("Llama"))).config
    assert (back.bos_token_id, back.eos_token_id, back.pad_token_id) == (1, 2, None)
