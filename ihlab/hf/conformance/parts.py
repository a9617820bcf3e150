"""Switch off a model's attention, to find out whether an error comes from its local state."""

from typing import Any

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask


def _own_value(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, **_: Any
) -> tuple[Tensor, None]:
    """Attend to the token itself only. Shapes [batch, head, pos, d_head]; returns [batch, pos,
    head, d_head].
    """
    own_values = value[:, :, -query.shape[2] :]
    return own_values.repeat_interleave(query.shape[1] // own_values.shape[1], dim=1).transpose(
        1, 2
    ).contiguous(), None


AttentionInterface.register("own_value", _own_value)
AttentionMaskInterface.register("own_value", sdpa_mask)


def without_attention(model: Any) -> Any:
    """Let every attention layer see only the token itself, in place, and return the model."""
    for module in model.modules():
        if hasattr(getattr(module, "config", None), "_attn_implementation"):
            module.config._attn_implementation = "own_value"
    return model
