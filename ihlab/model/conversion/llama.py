"""Conversion of weights to and from Hugging Face's Llama, and from its relatives: Mistral, Qwen2,
Qwen3, SmolLM3.
"""

from typing import Any

from torch import Tensor

from ihlab.model.config import ModelConfig
from ihlab.model.conversion.checks import (
    exact_rotary,
    precision,
    proven,
    require_all_used,
    require_family,
)
from ihlab.model.conversion.configs import reach, special_tokens
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks.config import require
from tasks.memory import in_units

LLAMA = {
    "attention": "vanilla",
    "positional": "rope",
    "norm": "rms",
    "mlp": "swiglu",
    "mask": "causal",
    "residual": True,
    "bias": False,
    "dropout": 0.0,
    "unembedding": "linear",
    "stream_shift": "none",
    "canon": "",
    "qk_norm": False,
    "rotary_layers": None,
    "rotary_frequencies": None,
    "rotary_scale": 1.0,
    "smear": "none",
}
"""Fields of a model for which Llama allows only one value."""

FAMILY = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "SmolLM3ForCausalLM",
)
"""Classes of transformers with Llama's block. They may differ in biases, norms of queries and keys,
rotary tables.
"""

FREE_TABLES = 2**28
"""Bytes that the rotary tables (cos and sin of each position) may take in a model of any size."""

ROTARY = ("default", "linear", "llama3", "yarn")
"""Types of rotary positions whose angles do not depend on the sequence length."""

_LAYER_NAMES = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.o_proj": "self_attn.o_proj",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.in_proj": "mlp.up_proj",
    "mlp.out_proj": "mlp.down_proj",
}


def _llama_names(cfg: ModelConfig) -> dict[str, str]:
    names = {
        "embed.weight": "model.embed_tokens.weight",
        "ln_final.w": "model.norm.weight",
        "unembed.weight": "lm_head.weight",
    }
    kinds = ("weight", "bias") if cfg.bias else ("weight",)
    for layer in range(cfg.n_layers):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        names |= {
            f"{ours}{a}.{kind}": f"{theirs}{b}.{kind}"
            for a, b in _LAYER_NAMES.items()
            for kind in kinds
        }
        names[f"{ours}ln1.w"] = f"{theirs}input_layernorm.weight"
        names[f"{ours}ln2.w"] = f"{theirs}post_attention_layernorm.weight"
        if cfg.qk_norm:
            names |= {
                f"{ours}attn.{norm}.w": f"{theirs}self_attn.{norm}.weight"
                for norm in ("q_norm", "k_norm")
            }
    return names


@own_settings()
def to_llama(model: Transformer) -> Any:
    """Return a `transformers.LlamaForCausalLM` with this model's weights and its special tokens, if
    it has any.

    Raises `ConfigError` for a model that Llama cannot express (shifted, or with parts switched
    off).
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    cfg = model.cfg
    for name, only in LLAMA.items():
        value = getattr(cfg, name)
        require(
            value == only,
            f"The model has {name}={value!r}, but Llama can only have {name}={only!r}.",
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
        **{
            "pad_token_id": None,
            "bos_token_id": None,
            "eos_token_id": None,
            **model.special_tokens,
        },
    )
    llama_model = LlamaForCausalLM(config)
    names = _llama_names(cfg)
    state = model.state_dict()
    llama_model.load_state_dict({names[name]: value for name, value in state.items()})
    return llama_model


@own_settings()
def from_llama(llama: Any, n_ctx: int | None = None) -> Transformer:
    """Return a `Transformer`, in evaluation mode, with the weights of a `LlamaForCausalLM` or one
    of its relatives.

    The class of `llama` must be in `FAMILY`. The result is in float64 if `llama` is, otherwise in
    float32, with exact rotary frequencies. Biases that the original lacks are 0. `n_ctx` shortens
    the context, and with it the tables of angles. A sliding window shortens the context to the
    window's width, so that every token is visible. Dropout is left out. The result's logits are
    compared with the original's.

    Raises `ConfigError` for another class, another activation than silu, rotary positions that
    depend on the sequence length, unexpected weights, and logits that differ.
    """
    require_family(llama, FAMILY, "from_llama")
    name, theirs, body = type(llama).__name__, llama.config, llama.model
    rotary, kind = exact_rotary(llama, body.rotary_emb), theirs.rope_parameters["rope_type"]
    require(
        kind in ROTARY,
        f"The {name} has rope_type={kind!r}, but must have one of {', '.join(ROTARY)}.",
    )
    require(
        theirs.hidden_act == "silu",
        f"The {name} has hidden_act={theirs.hidden_act!r}, but must have 'silu'.",
    )
    state: dict[str, Tensor] = llama.state_dict()
    d_head = int(body.layers[0].self_attn.head_dim)
    rotates = getattr(theirs, "no_rope_layers", None)  # SmolLM3's: 1 where a layer rotates
    longest = [theirs.max_position_embeddings, reach(theirs), n_ctx]
    cfg = ModelConfig(
        n_layers=theirs.num_hidden_layers,
        d_model=theirs.hidden_size,
        n_heads=theirs.num_attention_heads,
        n_key_value_heads=theirs.num_key_value_heads,
        d_head=d_head,
        d_mlp=theirs.intermediate_size,
        d_vocab=theirs.vocab_size,
        n_ctx=min(size for size in longest if size is not None),
        rotary_base=float(theirs.rope_parameters["rope_theta"]),
        rotary_frequencies=None if kind == "default" else tuple(rotary.inv_freq.tolist()),
        rotary_scale=float(rotary.attention_scaling),
        rotary_layers=None if rotates is None or all(rotates) else tuple(map(bool, rotates)),
        eps=theirs.rms_norm_eps,
        bias=any(key.endswith("_proj.bias") for key in state),
        qk_norm=hasattr(body.layers[0].self_attn, "q_norm"),
        tied_embeddings=llama.lm_head.weight is body.embed_tokens.weight,
    )
    tables = 8 * cfg.n_layers * cfg.n_ctx * d_head
    require(
        tables <= max(FREE_TABLES, 4 * sum(weight.nbytes for weight in state.values())),
        f"n_ctx is {cfg.n_ctx}, whose tables of angles take {in_units(tables)}, much more than the {name}: give a "
        "smaller n_ctx.",
    )
    model, names = Transformer(cfg).to(precision(llama)), _llama_names(cfg)
    require_all_used(llama, state, names.values())
    for ours, weight in model.state_dict().items():
        if names[ours].endswith("bias") and names[ours] not in state:
            weight.zero_()  # a bias that the original lacks
        else:
            weight.copy_(state[names[ours]])
    model.special_tokens = special_tokens(theirs, getattr(llama, "generation_config", None))
    return proven(model, llama)
