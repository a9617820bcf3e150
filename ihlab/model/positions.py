"""Position encodings: rotary (Su et al. 2021, arXiv 2104.09864) in Llama's half-split convention,
and ALiBi.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Positions = slice | Int[Tensor, "batch query"]
"""Positions of tokens: a slice, the same for all sequences, or the position numbers of each
sequence.
"""


def as_tensor(positions: Positions, device: torch.device) -> Int[Tensor, "#batch query"]:
    """Return the positions as a tensor. A slice gives one row for all sequences."""
    if isinstance(positions, slice):
        return torch.arange(positions.start, positions.stop, device=device)[None]
    return positions


class Rotary(nn.Module):
    """Rotate the pair (x_i, x_{i + d/2}) at position t by the angle t / base^(2i / d).

    Like Hugging Face's Llama, it does not pair neighbouring channels; weights trained with one
    pairing fail with the other. `frequencies` replace the angles per position, 1 / base^(2i / d).
    Rotated vectors are multiplied by `scale`.
    """

    cos: Tensor
    signed_sin: Tensor

    def __init__(
        self,
        d_head: int,
        n_ctx: int,
        base: float,
        frequencies: Sequence[float] | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        if frequencies is None:
            frequency = base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        else:
            frequency = torch.tensor(frequencies, dtype=torch.float64)
        angle = torch.arange(n_ctx, dtype=torch.float64)[:, None] * frequency
        cos, sin = (scale * angle.cos()).float()[:, None], (scale * angle.sin()).float()[:, None]
        self.register_buffer(
            "cos", torch.cat([cos, cos], dim=-1), persistent=False
        )  # [pos, 1, d_head]
        self.register_buffer("signed_sin", torch.cat([-sin, sin], dim=-1), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch query head d_head"], positions: Positions | None = None
    ) -> Float[Tensor, "batch query head d_head"]:
        """Rotate every head's vector by the angles of its position; without positions they are 0,
        1, 2, ...
        """
        rows = slice(0, x.shape[1]) if positions is None else positions
        cos, signed_sin = (table[rows].to(x.dtype) for table in (self.cos, self.signed_sin))
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([second, first], dim=-1) * signed_sin


class Alibi(nn.Module):
    """ALiBi (Press et al. 2022, arXiv 2108.12409): add -slope * (query position - key position) to
    the scores.

    By default n heads have the slopes 2^(-8 i / n), i = 1 .. n, if n is a power of two. For another
    n, the slopes of the next lower power of two come first, then every other slope of the next
    higher one.
    """

    slopes: Tensor

    def __init__(self, n_heads: int, slopes: Sequence[float] | None = None) -> None:
        super().__init__()
        if slopes is None:
            below = 2 ** (n_heads.bit_length() - 1)
            slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
            slopes += [2 ** (-4 * i / below) for i in range(1, 2 * (n_heads - below), 2)]
        per_head = torch.tensor(slopes, dtype=torch.float64)
        self.register_buffer("slopes", per_head, persistent=False)

    def forward(
        self, ahead: Int[Tensor, "batch query key"], dtype: torch.dtype
    ) -> Float[Tensor, "batch head query key"]:
        """Return the bias of every head, where `ahead` is the position of each key minus that of
        each query.

        Biases of keys after their query have no meaning: the mask hides those keys.
        """
        return (self.slopes[:, None, None] * ahead[:, None]).to(dtype)
