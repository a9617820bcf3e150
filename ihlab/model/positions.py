"""Rotary positions (Su et al. 2021, arXiv 2104.09864), in the half-split convention of Llama checkpoints."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Rotary(nn.Module):
    """Turn the pair (x_i, x_{i + d/2}) at position t by the angle t / base^(2i / d).

    Pairing halves rather than neighbours is what Hugging Face's Llama does; weights trained under
    one pairing are noise under the other.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, n_ctx: int, base: float) -> None:
        super().__init__()
        frequency = base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        angle = torch.arange(n_ctx, dtype=torch.float64)[:, None] * frequency
        self.register_buffer("cos", angle.cos().float()[:, None], persistent=False)  # [pos, 1, d_head / 2]
        self.register_buffer("sin", angle.sin().float()[:, None], persistent=False)

    def forward(self, x: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos head d_head"]:
        """Turn every head's vector by its position's angle."""
        # Tables as wide as x, all heads: a CPU multiplies by a short or broadcast last axis several times slower.
        n_pos, n_heads = x.shape[1:3]
        cos = self.cos[:n_pos].to(x.dtype).repeat(1, n_heads, 2)
        sin = self.sin[:n_pos].to(x.dtype)
        signed_sin = torch.cat([-sin, sin], dim=-1).repeat(1, n_heads, 1)
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([second, first], dim=-1) * signed_sin
