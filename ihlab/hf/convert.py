"""Conversion of our shifted models to transformers and back: `to_hf` and `from_hf`."""

import os
from copy import deepcopy
from typing import Any

import torch

from ihlab.hf.attention import SHIFT, attentions
from ihlab.hf.model import KVShiftForCausalLM, add_shift, unshifted
from ihlab.hf.shift import Taps
from ihlab.model.conversion import from_llama, to_llama
from ihlab.model.conversion.checks import proven, require_loaded, require_merged
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from ihlab.storage.model_folder import of_model
from tasks.config import ConfigError, require

VARIANTS = {(True, True): "kv_shift", (True, False): "k_shift", (False, True): "v_shift"}
"""Our attention variants, keyed by whether keys are shifted and whether values are shifted."""


@own_settings()
@torch.no_grad()
def to_hf(model: Transformer) -> Any:
    """Return a `KVShiftForCausalLM` with the weights of a model whose attention is kv_shift,
    k_shift or v_shift. Weights pass through float32.

    Raises `ConfigError` for another attention, and for a model that Llama cannot express.
    """
    cfg = model.cfg
    sides = next((sides for sides, name in VARIANTS.items() if name == cfg.attention), None)
    if sides is None:
        raise ConfigError(
            f"The model has attention={cfg.attention!r}, but to_hf takes kv_shift, k_shift or v_shift."
        )
    plain = Transformer(cfg.replace(attention="vanilla"))
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if name in plain.state_dict()}
    )
    plain.special_tokens = model.special_tokens
    llama = to_llama(plain)
    for weight in llama.parameters():  # `to` would round rotary frequencies, too
        weight.data = weight.data.to(model.unembed.weight.dtype)
    shifted = add_shift(llama, cfg.shift_window, *sides, first=cfg.shift_first)
    for block, attention in zip(model.blocks, attentions(shifted), strict=True):
        for side, taps in getattr(attention, SHIFT).named_parameters():
            taps.copy_(getattr(block.attn, side))
    return shifted.train(model.training)


@own_settings()
@torch.no_grad()
def from_hf(model: Any, n_ctx: int | None = None, reversed_taps: bool = False) -> Transformer:
    """Return a `Transformer`, in evaluation mode, with the weights of a `KVShiftForCausalLM` or of
    a folder of one.

    With `reversed_taps`, column 0 of the taps is the oldest token, as in Baichuan's checkpoints.
    `n_ctx` is as in `from_llama`. The result's logits are compared with the original's. Raises
    `ConfigError` for a model that a `Transformer` cannot express.
    """
    if isinstance(model, str | os.PathLike):
        with of_model(model):
            return from_hf(KVShiftForCausalLM.from_pretrained(model), n_ctx, reversed_taps)
    require_merged(model)
    require(
        isinstance(model, KVShiftForCausalLM),
        f"The model is a {type(model).__name__}, but must be shifted.",
    )
    require_loaded(model)
    config = model.config
    if reversed_taps:
        model = deepcopy(model)
        for module in model.modules():
            for taps in module.parameters() if isinstance(module, Taps) else ():
                taps.copy_(taps.flip(1))
    plain = from_llama(unshifted(model), n_ctx)
    shift = VARIANTS[config.shift_keys, config.shift_values]
    cfg = plain.cfg.replace(
        attention=shift, shift_window=config.shift_window, shift_first=config.shift_first
    )
    converted = Transformer(cfg).to(plain.unembed.weight.dtype)
    converted.load_state_dict(plain.state_dict(), strict=False)
    for block, module in zip(converted.blocks, attentions(model), strict=True):
        for side, ours in (("alpha", block.attn.key_shift), ("beta", block.attn.value_shift)):
            if ours is not None:
                ours.weight.copy_(getattr(getattr(module, SHIFT), side))
    converted.special_tokens = plain.special_tokens
    return proven(converted, model)
