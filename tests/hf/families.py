"""Shift a tiny model of every family of transformers that has a `k_proj` and a `v_proj`, and print how it ends.

    python -m tests.hf.families [FAMILY ...]

A family "works" if it passes checks 1, 3 and 4 of `ihlab.hf.conformance`:
it equals equation 5 as a loop over tokens, reads chunks as it reads the whole sequence, and skips padding. Checks that
the unshifted model fails, too, do not count.
"""

import sys
import warnings
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from ihlab.hf import add_shift
from ihlab.hf.attention import attentions
from ihlab.hf.conformance import run
from tasks.config import ConfigError

SIZES = {
    **{"vocab_size": 50, "max_position_embeddings": 64, "n_positions": 64, "hidden_size": 32, "d_model": 32},
    **{"embed_dim": 32, "n_embd": 32, "word_embed_proj_dim": 32, "intermediate_size": 48, "ffn_dim": 48, "d_ff": 48},
    **{
        "decoder_ffn_dim": 48,
        "encoder_ffn_dim": 48,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    **{"num_hidden_layers": 4, "num_layers": 2, "n_layer": 2, "decoder_layers": 2, "encoder_layers": 2},
    **{
        "num_attention_heads": 4,
        "num_heads": 4,
        "n_head": 4,
        "decoder_attention_heads": 4,
        "encoder_attention_heads": 4,
    },
    **{"num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4},
    **{"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "initializer_range": 0.3, "init_std": 0.3},
    **{"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "sliding_window": 6, "attention_dropout": 0.0},
    **{"attention_types": [[["global", "local"], 1]], "hidden_dropout": 0.0, "first_k_dense_replace": 1},
}
LARGEST = 30_000_000  # parameters


def tiny(family: str) -> Any:
    """Return a small model with random weights, of the sizes that the family's config has."""
    kind = CONFIG_MAPPING[family]
    known = set(kind().to_dict())
    config = kind(**{name: value for name, value in SIZES.items() if name in known})
    torch.manual_seed(0)
    with torch.device("meta"):
        size = sum(x.numel() for x in AutoModelForCausalLM.from_config(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size:,} parameters")
    return AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()  # others lack float64


def outcome(family: str) -> str | None:
    """Return how a family ends, or None if it has no `k_proj` and `v_proj`."""
    try:
        model = tiny(family)
    except Exception as error:  # not about the shift
        return f"not tried: {type(error).__name__}: {error}".splitlines()[0]
    if not attentions(model):
        return None
    try:
        add_shift(model)
    except ConfigError as error:
        return str(error)
    shifted, plain = (
        {row.number: row.detail for row in run(make, rows, backend="eager") if row.outcome == "FAIL"}
        for make, rows in ((lambda: add_shift(tiny(family)), (1, 3, 4)), (lambda: tiny(family), (3, 4)))
    )
    wrong = [f"{number}: {shifted[number]}" for number in shifted.keys() - plain.keys()]
    return "WRONG: " + "; ".join(wrong) if wrong else f"works{', but not with padding, shifted or not' * (4 in plain)}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    for name in sys.argv[1:] or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if (ends := outcome(name)) is not None:
            print(f"| {name} | {ends} |", flush=True)
