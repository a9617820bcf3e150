"""Root-mean-square norm and layer norm with TransformerLens' hooks."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.config import ModelConfig


class RMSNorm(nn.Module):
    """x / scale * w with scale = sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019, arXiv 1910.07467).

    hook_scale [batch, pos, 1] is the scale; hook_normalized [batch, pos, d_model] is x / scale,
    before the learned w [d_model]. With an axis of heads, each head's vector is normalised on its
    own.
    """

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.w = nn.Parameter(torch.ones(d_model))
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos *head d_model"]
    ) -> Float[Tensor, "batch pos *head d_model"]:
        """Normalise in float32, whatever the type of x: bfloat16 is too imprecise for the mean of
        squares.
        """
        return self._normalise(_wide(x)).to(x.dtype)

    def _normalise(
        self, x: Float[Tensor, "batch pos *head d_model"]
    ) -> Float[Tensor, "batch pos *head d_model"]:
        scale = self.hook_scale((x.pow(2).mean(dim=-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(x / scale) * self.w


class LayerNorm(RMSNorm):
    """RMSNorm of the centred vector, plus a bias: (x - mean(x)) / scale * w + b (Ba et al. 2016,
    arXiv 1607.06450).

    scale = sqrt(mean((x - mean(x))^2) + eps); hook_normalized is (x - mean(x)) / scale, before the
    learned w and b [d_model].
    """

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__(d_model, eps)
        self.b = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Normalise in float32, whatever the type of x."""
        wide = _wide(x)
        return (self._normalise(wide - wide.mean(dim=-1, keepdim=True)) + self.b).to(x.dtype)


def make_norm(cfg: ModelConfig) -> RMSNorm | None:
    """Return the norm of a config; None if it has none."""
    if cfg.norm == "none":
        return None
    if cfg.norm == "layer":
        return LayerNorm(cfg.d_model, cfg.eps)
    return RMSNorm(cfg.d_model, cfg.eps)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
