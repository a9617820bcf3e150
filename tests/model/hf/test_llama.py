"""The vanilla model against Hugging Face's Llama: two implementations, one set of weights."""

import re

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ihlab.model.hf import from_llama, to_llama
from tasks import ConfigError

SHAPES = pytest.mark.parametrize(
    "shape",
    [
        {},  # grouped queries, d_head 6 where d_model / n_heads is 5
        {"n_key_value_heads": 4},
        {"n_key_value_heads": 1},
        {"d_model": 24, "d_head": 6},
        {"tied_embeddings": True},
        {"rotary_base": 50.0, "eps": 0.1},
    ],
    ids=["grouped", "ungrouped", "one_key_head", "usual_d_head", "tied", "base_and_eps"],
)


@torch.no_grad()
def assert_same_logits(model, llama, tokens):
    ours, theirs = model(tokens), llama.eval()(tokens).logits
    assert (ours - theirs).abs().max() < 1e-5 * theirs.std()


def llama_with(**changes):
    """A Llama made by Hugging Face, with random weights everywhere."""
    settings = {
        "vocab_size": 19,
        "hidden_size": 20,
        "intermediate_size": 14,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "max_position_embeddings": 12,
        "rms_norm_eps": 1e-4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    llama = LlamaForCausalLM(LlamaConfig(**{**settings, **changes}))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in llama.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5)
    return llama


@SHAPES
def test_to_llama_gives_the_same_logits(make_model, tokens, shape):
    model = make_model(**shape)
    assert_same_logits(model, to_llama(model), tokens)


@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}])
def test_from_llama_gives_the_same_logits(tokens, changes):
    llama = llama_with(**changes)
    assert_same_logits(from_llama(llama), llama, tokens)


@SHAPES
def test_there_and_back_is_the_same_model(make_model, shape):
    model = make_model(**shape)
    back = from_llama(to_llama(model))
    assert back.cfg == model.cfg
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


def test_the_llama_is_a_copy(make_model):
    model = make_model()
    llama = to_llama(model)
    before = llama.lm_head.weight.clone()
    with torch.no_grad():
        model.unembed.weight.zero_()
    assert torch.equal(llama.lm_head.weight, before)


@pytest.mark.parametrize(
    "part",
    [
        {"attention": "kv_shift"},
        {"positional": "none"},
        {"norm": "none"},
        {"mlp": "none"},
        {"residual": False},
        {"residual": (True, False)},
        {"mask": "strict"},
        {"positional": "learned"},
        {"norm": "layer"},
        {"mlp": "gelu"},
        {"bias": True},
        {"dropout": 0.1},
        {"unembedding": "none"},
    ],
    ids=str,
)
def test_a_model_that_llama_cannot_express_is_refused(make_model, part):
    [(name, value)] = part.items()
    with pytest.raises(ConfigError, match=rf"^The model has {name}={re.escape(repr(value))}, but Llama can only "):
        to_llama(make_model(**part))


def test_a_width_that_llama_cannot_express_is_refused(make_model):
    """Hugging Face wants d_model to be a multiple of n_heads, whatever d_head is."""
    with pytest.raises(ConfigError, match="d_model"):
        to_llama(make_model(d_model=18))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention_bias": True}, "attention_bias=True"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}}, "rope_type='linear'"),
        ({"hidden_act": "gelu"}, "gelu"),
    ],
    ids=["attention_bias", "mlp_bias", "rope", "activation"],
)
def test_a_llama_that_we_cannot_express_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        from_llama(llama_with(**changes))
