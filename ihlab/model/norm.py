"""Root-mean-square norm with TransformerLens' hooks."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint


class RMSNorm(nn.Module):
    """x / scale * w with scale = sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019, arXiv 1910.07467).

    hook_scale [batch, pos, 1] is the scale; hook_normalized [batch, pos, d_model] is x / scale,
    before the learned w [d_model].
    """

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.w = nn.Parameter(torch.ones(d_model))
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Normalise in float32 whatever the stream's type: the mean of squares does not fit bfloat16."""
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        scale = self.hook_scale((wide.pow(2).mean(dim=-1, keepdim=True) + self.eps).sqrt())
        return (self.hook_normalized(wide / scale) * self.w).to(x.dtype)
