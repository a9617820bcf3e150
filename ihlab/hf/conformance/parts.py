"""A model without its attention, or without its convolutions: which of them does an error come from?"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask


def _own_value(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, **_: Any
) -> tuple[Tensor, None]:
    """Attend to the token itself only. Shapes [batch, head, pos, d_head]; returns [batch, pos, head, d_head]."""
    own = value[:, :, -query.shape[2] :]
    return own.repeat_interleave(query.shape[1] // own.shape[1], dim=1).transpose(1, 2).contiguous(), None


AttentionInterface.register("own_value", _own_value)
AttentionMaskInterface.register("own_value", sdpa_mask)


def without_attention(model: Any) -> Any:
    """Let every attention layer see only the token itself, in place, and return the model."""
    for part in model.modules():
        if hasattr(getattr(part, "config", None), "_attn_implementation"):
            part.config._attn_implementation = "own_value"
    return model


@torch.no_grad()
def without_convolutions(model: Any) -> Any:
    """Set the weights of all convolutions to 0, in place, and return the model. Recurrences behind them then read 0."""
    for part in model.modules():
        if isinstance(part, nn.Conv1d):
            for weight in part.parameters():
                weight.zero_()
    return model
