"""The attention of a layer, as a config says."""

import torch

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.mla import LatentAttention


def make_attention(cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0) -> Attention:
    """Return the attention that `cfg.attention` names; mixing weights are drawn from the generator."""
    kind = LatentAttention if cfg.latent else Attention
    return kind(cfg, generator, layer)
