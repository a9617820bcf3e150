"""Weights to and from Hugging Face's GPT-2."""

from typing import Any

import torch
from torch import Tensor

from ihlab.model.config import GPT2, ModelConfig
from ihlab.model.conversion.checks import precision, proven, require_all_used, require_family
from ihlab.model.conversion.configs import special_tokens
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks.config import require

# The value of each field in a model that GPT-2 can express; eps may have any value.
_REQUIRED = {name: value for name, value in GPT2.items() if name != "eps"} | {
    "attention": "vanilla",
    "mask": "causal",
    "residual": True,
    "unembedding": "linear",
    "stream_shift": "none",
    "canon": "",
    "smear": "none",
}

_LAYER_NAMES = {
    "ln1.w": "ln_1.weight",
    "ln1.b": "ln_1.bias",
    "ln2.w": "ln_2.weight",
    "ln2.b": "ln_2.bias",
    "attn.o_proj.weight": "attn.c_proj.weight",
    "attn.o_proj.bias": "attn.c_proj.bias",
    "mlp.in_proj.weight": "mlp.c_fc.weight",
    "mlp.in_proj.bias": "mlp.c_fc.bias",
    "mlp.out_proj.weight": "mlp.c_proj.weight",
    "mlp.out_proj.bias": "mlp.c_proj.bias",
}


@own_settings()
def to_gpt2(model: Transformer) -> Any:
    """Return a `transformers.GPT2LMHeadModel` with this model's weights.

    Raises `ConfigError` for a model that GPT-2 cannot express (shifted, or with parts that are not
    GPT-2's).
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    cfg = model.cfg
    for name, value in _REQUIRED.items():
        actual = getattr(cfg, name)
        require(actual == value, f"The model's {name} is {actual!r}, but GPT-2's is {value!r}.")
    require(
        cfg.kv_heads == cfg.n_heads and cfg.n_heads * cfg.head_width == cfg.d_model,
        f"The model has n_heads={cfg.n_heads}, n_key_value_heads={cfg.kv_heads} and d_head={cfg.head_width}, but GPT-2 "
        f"has as many key/value heads as heads, together as wide as d_model={cfg.d_model}.",
    )
    config = GPT2Config(
        vocab_size=cfg.d_vocab,
        n_positions=cfg.n_ctx,
        n_embd=cfg.d_model,
        n_layer=cfg.n_layers,
        n_head=cfg.n_heads,
        n_inner=cfg.mlp_width,
        activation_function="gelu_new",
        resid_pdrop=cfg.dropout,
        embd_pdrop=cfg.dropout,
        attn_pdrop=cfg.dropout,
        layer_norm_epsilon=cfg.eps,
        tie_word_embeddings=cfg.tied_embeddings,
        **{"bos_token_id": None, "eos_token_id": None, **model.special_tokens},
    )
    gpt2 = GPT2LMHeadModel(config)
    ours = model.state_dict()
    state = {theirs: _transposed(name, ours[name]) for name, theirs in _names(cfg).items()}
    for theirs, names in _merged_names(cfg).items():
        state[theirs] = torch.cat([_transposed(name, ours[name]) for name in names], dim=-1)
    gpt2.load_state_dict(state)
    return gpt2


@own_settings()
def from_gpt2(gpt2: Any) -> Transformer:
    """Return a `Transformer` with the weights of a `transformers.GPT2LMHeadModel`.

    It is in evaluation mode and has the GPT-2's dropout for training. Its logits are compared with
    the original's. Raises `ConfigError` if they differ, for another class, for unexpected weights,
    and for parts that our blocks cannot express: another activation, other scales of the scores,
    cross-attention, or dropouts that are not all equal.
    """
    require_family(gpt2, ("GPT2LMHeadModel",), "from_gpt2")
    theirs = gpt2.config
    form = (
        theirs.activation_function,
        theirs.scale_attn_weights,
        theirs.scale_attn_by_inverse_layer_idx,
        theirs.add_cross_attention,
    )
    require(
        form == ("gelu_new", True, False, False),
        "Only a GPT-2 with gelu_new, scores over sqrt(d_head) and no cross-attention can be read; this one has "
        "activation_function={!r}, scale_attn_weights={}, scale_attn_by_inverse_layer_idx={}, "
        "add_cross_attention={}.".format(*form),
    )
    dropouts = (theirs.embd_pdrop, theirs.attn_pdrop, theirs.resid_pdrop)
    require(
        len(set(dropouts)) == 1,
        "The GPT-2's embd_pdrop, attn_pdrop and resid_pdrop are {}, {} and {}, but must be alike.".format(
            *dropouts
        ),
    )
    cfg = ModelConfig(
        n_layers=theirs.n_layer,
        d_model=theirs.n_embd,
        n_heads=theirs.n_head,
        d_mlp=theirs.n_inner,
        d_vocab=theirs.vocab_size,
        n_ctx=theirs.n_positions,
        dropout=float(theirs.resid_pdrop),
        tied_embeddings=gpt2.lm_head.weight is gpt2.transformer.wte.weight,
        **{**GPT2, "eps": theirs.layer_norm_epsilon},
    )
    state = gpt2.state_dict()
    ours = {
        name: _transposed(name, state[theirs_name]) for name, theirs_name in _names(cfg).items()
    }
    for merged, names in _merged_names(cfg).items():
        ours |= {
            name: _transposed(name, x)
            for name, x in zip(names, state[merged].chunk(3, dim=-1), strict=True)
        }
    require_all_used(gpt2, state, [*_names(cfg).values(), *_merged_names(cfg)])
    model = Transformer(cfg).to(precision(gpt2))
    model.load_state_dict(ours)
    model.special_tokens = special_tokens(theirs, getattr(gpt2, "generation_config", None))
    return proven(model, gpt2)


def _names(cfg: ModelConfig) -> dict[str, str]:
    """Map our parameter names to Hugging Face's, except those of queries, keys and values."""
    names = {
        "embed.weight": "transformer.wte.weight",
        "pos_embed.weight": "transformer.wpe.weight",
        "ln_final.w": "transformer.ln_f.weight",
        "ln_final.b": "transformer.ln_f.bias",
        "unembed.weight": "lm_head.weight",
    }
    for layer in range(cfg.n_layers):
        names |= {
            f"blocks.{layer}.{ours}": f"transformer.h.{layer}.{theirs}"
            for ours, theirs in _LAYER_NAMES.items()
        }
    return names


def _merged_names(cfg: ModelConfig) -> dict[str, list[str]]:
    """Map Hugging Face's names of concatenated queries, keys and values to our three names."""
    return {
        f"transformer.h.{layer}.attn.c_attn.{kind}": [
            f"blocks.{layer}.attn.{side}_proj.{kind}" for side in "qkv"
        ]
        for layer in range(cfg.n_layers)
        for kind in ("weight", "bias")
    }


def _transposed(name: str, value: Tensor) -> Tensor:
    """Transpose the weights of linear maps: [out, in] here, [in, out] in GPT-2. Return all others
    unchanged.
    """
    return value.T if name.endswith("_proj.weight") else value
