"""Weights to and from Hugging Face's Llama."""

from collections.abc import Mapping
from typing import Any

import torch

from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks.config import require

LLAMA = {
    **{"attention": "vanilla", "positional": "rope", "norm": "rms", "mlp": "swiglu", "mask": "causal"},
    **{"residual": True, "bias": False, "dropout": 0.0, "unembedding": "linear", "stream_shift": "none", "canon": ""},
}
"""Fields of a model that Llama knows one value of."""

_LAYER_NAMES = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.o_proj": "self_attn.o_proj",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.in_proj": "mlp.up_proj",
    "mlp.out_proj": "mlp.down_proj",
}


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _llama_names(cfg: ModelConfig) -> dict[str, str]:
    """Map our parameter names to those of `LlamaForCausalLM`."""
    names = {
        "embed.weight": "model.embed_tokens.weight",
        "ln_final.w": "model.norm.weight",
        "unembed.weight": "lm_head.weight",
    }
    for layer in range(cfg.n_layers):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        names |= {f"{ours}{a}.weight": f"{theirs}{b}.weight" for a, b in _LAYER_NAMES.items()}
        names[f"{ours}ln1.w"] = f"{theirs}input_layernorm.weight"
        names[f"{ours}ln2.w"] = f"{theirs}post_attention_layernorm.weight"
    return names


def to_llama(model: Transformer) -> Any:
    """Return a `transformers.LlamaForCausalLM` with this model's weights.

    Raises `ConfigError` for a model that Llama cannot express (shifted, or with parts switched off).
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    cfg = model.cfg
    other = {name: getattr(cfg, name) for name, only in LLAMA.items() if getattr(cfg, name) != only}
    require(
        not other,
        f"The model has {_told(other)}, but Llama can only have {_told({name: LLAMA[name] for name in other})}.",
    )
    require(
        cfg.d_model % cfg.n_heads == 0,
        f"The model's d_model is {cfg.d_model}, but Llama's must be a multiple of n_heads={cfg.n_heads}.",
    )
    config = LlamaConfig(
        vocab_size=cfg.d_vocab,
        hidden_size=cfg.d_model,
        intermediate_size=cfg.mlp_width,
        num_hidden_layers=cfg.n_layers,
        num_attention_heads=cfg.n_heads,
        num_key_value_heads=cfg.kv_heads,
        head_dim=cfg.head_width,
        max_position_embeddings=cfg.n_ctx,
        rms_norm_eps=cfg.eps,
        rope_parameters={"rope_type": "default", "rope_theta": cfg.rotary_base},
        tie_word_embeddings=cfg.tied_embeddings,
        attention_bias=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    llama_model = LlamaForCausalLM(config)
    names = _llama_names(cfg)
    state = {names[name]: value.detach().clone() for name, value in model.state_dict().items()}
    llama_model.load_state_dict(state, strict=True)
    return llama_model


def from_llama(llama: Any) -> Transformer:
    """Return a `Transformer`, in evaluation mode, with the weights of a `transformers.LlamaForCausalLM`.

    Raises `ConfigError` unless it has default rotary positions, silu and no biases.
    """
    theirs = llama.config
    rope = theirs.rope_parameters
    form = (rope["rope_type"], theirs.hidden_act, theirs.attention_bias, theirs.mlp_bias)
    require(
        form == ("default", "silu", False, False),
        "Only a Llama with default rotary positions, silu and no biases can be read; this one has rope_type={!r}, "
        "hidden_act={!r}, attention_bias={}, mlp_bias={}.".format(*form),
    )
    cfg = ModelConfig(
        n_layers=theirs.num_hidden_layers,
        d_model=theirs.hidden_size,
        n_heads=theirs.num_attention_heads,
        n_key_value_heads=theirs.num_key_value_heads,
        d_head=theirs.head_dim,
        d_mlp=theirs.intermediate_size,
        d_vocab=theirs.vocab_size,
        n_ctx=theirs.max_position_embeddings,
        rotary_base=float(rope["rope_theta"]),
        eps=theirs.rms_norm_eps,
        tied_embeddings=theirs.tie_word_embeddings,
    )
    model = Transformer(cfg)
    state = llama.state_dict()
    with torch.no_grad():
        model.load_state_dict({ours: state[name].detach().clone() for ours, name in _llama_names(cfg).items()})
    return model.eval()
