"""Padded prompts: find the padding, and refuse it without a mask."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from ihlab.interp.head_model import HeadModel
from ihlab.model.conversion.configs import special_tokens
from ihlab.model.lens.padding import Mask
from ihlab.model.transformer import Transformer
from tasks.config import require


def prompts_mask(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], attention_mask: Any
) -> Mask | None:
    """Return which positions of prompts are not padding; None: all.

    Raises `ConfigError` without a mask for prompts that seem to begin with padding: with the
    padding token, or with the same special token twice.
    """
    if attention_mask is None:
        special = _special(model)
        pad = special.get("pad_token_id", -1)
        first, second = tokens[:, 0], tokens[:, min(1, tokens.shape[1] - 1)]
        ids = torch.tensor([*special.values()], device=tokens.device)
        padding = (first == second) & torch.isin(first, ids)
        if pad != special.get("bos_token_id"):
            padding |= first == pad
        require(
            not padding.any(),
            "Some prompts begin with padding, which the model would read as text: give attention_mask [batch, pos], "
            "1 at tokens and 0 at padding.",
        )
    return model.mask(tokens, attention_mask)


def _special(model: HeadModel) -> dict[str, int]:
    module = model.module
    if isinstance(module, Transformer):
        return dict(module.special_tokens)
    config: Any = getattr(getattr(module, "original_model", module), "config", None)
    return (
        special_tokens(config.get_text_config(decoder=True))
        if hasattr(config, "get_text_config")
        else {}
    )
