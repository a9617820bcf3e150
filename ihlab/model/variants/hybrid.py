"""A hybrid: the gated delta rule in layers 0, 2, ..., softmax attention in layers 1, 3, ...

Recent hybrids (Kimi Linear, arXiv 2510.26692; Qwen3-Next) have three recurrent layers for each
attention layer. Two layers are the smallest hybrid that can have an induction head: recurrence
brings previous tokens into the head's keys.
"""

import torch

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.variants.delta_rule import GatedDeltaRule


def delta_hybrid(
    cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
) -> Attention:
    """Return a layer's attention: `GatedDeltaRule` in even layers, `Attention` in odd ones."""
    return (Attention if layer % 2 else GatedDeltaRule)(cfg, generator, layer)
