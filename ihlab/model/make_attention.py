"""The attention of a layer, as a config says."""

import torch

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.differential import DifferentialAttention
from ihlab.model.mla import LatentAttention
from ihlab.model.selective import SelectiveAttention


def make_attention(cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0) -> Attention:
    """Return the attention that `cfg.attention` names; what is no matrix draws from the generator."""
    kinds: dict[str, type[Attention]] = {
        "mla": LatentAttention,
        "mla_kv": LatentAttention,
        "differential": DifferentialAttention,
        "selective": SelectiveAttention,
    }
    return kinds.get(cfg.attention, Attention)(cfg, generator, layer)
