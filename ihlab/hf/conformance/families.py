"""Tiny random models of the causal families of transformers, and which of the families have local
state.
"""

import itertools
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import (
    DynamicCache,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

from ihlab.hf.conformance.compare import MakeModel, reach, tokens
from ihlab.hf.conformance.parts import without_attention
from tasks.config import choose, require

WIDTHS = {
    32: """hidden_size d_model embed_dim n_embd word_embed_proj_dim embedding_dim indexer_head_dim lru_width""",
    48: """intermediate_size ffn_dim d_ff decoder_ffn_dim encoder_ffn_dim""",
    16: """moe_intermediate_size shared_expert_intermediate_size mamba_d_head mamba_head_dim kv_lora_rank
        q_lora_rank""",
    8: """head_dim rotary_dim mamba_d_state ssm_state_size state_size linear_head_dim linear_key_head_dim
        linear_value_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim attention_head_dim swa_head_dim
        chunk_size mamba_chunk_size block_size""",
    64: """mamba_d_ssm""",
    1024: """max_position_embeddings n_positions""",
    4: """num_hidden_layers num_attention_heads num_heads n_head decoder_attention_heads encoder_attention_heads
        num_experts num_local_experts n_routed_experts mamba_n_heads mamba_num_heads linear_num_heads
        linear_num_value_heads n_mamba_heads indexer_n_heads swa_num_attention_heads""",
    2: """num_layers n_layer decoder_layers encoder_layers num_key_value_heads num_experts_per_tok num_experts_per_token
        linear_num_key_heads swa_num_key_value_heads layer_group_size attn_layer_period n_groups""",
    1: """logits_mup_width_multiplier n_group topk_group num_expert_group indexer_kv_heads
        first_k_dense_replace bos_token_id attn_layer_offset""",
    0: """attention_dropout hidden_dropout pad_token_id""",
    6: """sliding_window sliding_window_size""",
    0.2: """initializer_range init_std""",
}
SIZES: dict[str, Any] = {
    **{name: size for size, names in WIDTHS.items() for name in names.split()},
    "vocab_size": 50,
    "eos_token_id": None,
    "attention_types": [[["global", "local"], 1]],
    "is_decoder": True,
}
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "dots1": {"num_experts_per_tok": 2, "n_shared_experts": 1},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "activation_sparsity_pattern": [0.0] * 4,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 50,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
        "altup_num_inputs": 2,
    },
    "gemma4_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 50,
        "hidden_size_per_layer_input": 8,
    },
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8},
    "qwen4_exp_text": {"indexer_budget": 8, "indexer_compress_ratio": 2},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},
    "zaya": {"num_experts_per_tok": 1},
}
LARGEST = 30_000_000  # parameters


def tiny(family: str) -> Any:
    """Return a small causal model with random weights, whose config has the values of `SIZES` and
    `OWN`.
    """
    choose("family", family, sorted(CAUSAL))
    kind = CONFIG_MAPPING[family]
    known = kind().to_dict()
    sizes = {name: value for name, value in SIZES.items() if name in known}
    for name in ("layer_types", "layers_block_type"):
        if types := list(dict.fromkeys(known.get(name) or ())):
            sizes[name] = list(
                itertools.islice(itertools.cycle(types), sizes.get("num_hidden_layers", 4))
            )
    if "kv_lora_rank" in known:  # latent attention has no groups
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    config = kind(**sizes | OWN.get(family, {}))
    torch.manual_seed(0)
    with torch.device("meta"):
        size = AutoModelForCausalLM.from_config(config).num_parameters()
    require(size <= LARGEST, f"{size:,} parameters")
    return AutoModelForCausalLM.from_config(
        config, experts_implementation="eager"
    ).eval()  # others lack float64


@torch.no_grad()
def shows_state(model: Any) -> bool:
    """Return whether earlier tokens still change the logits when each attention layer sees only the
    token itself. The model is changed so.
    """
    return reach(without_attention(model)) >= 1e-4


@torch.no_grad()
def has_local_state(make: MakeModel) -> bool:
    """Return whether a model `shows_state`, in its class or its cache, too.

    Some old families write out their own attention, which cannot be replaced. So the model must
    also be stateful, by its class, or its cache must hold more than keys and values.
    """
    model = make()
    if not shows_state(model):
        return False
    cache = model(input_ids=tokens(model, 1, 8), use_cache=True).get("past_key_values")
    cache = getattr(
        cache, "self_attention_cache", cache
    )  # of a decoder that could also read an encoder
    attention = {DynamicLayer, DynamicSlidingWindowLayer, DynamicIndexedLayer}
    plain = cache is None or (
        type(cache) is DynamicCache and {type(layer) for layer in cache.layers} <= attention
    )
    return model._is_stateful or not plain
