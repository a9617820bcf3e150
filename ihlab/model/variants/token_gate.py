"""Affine maps from each token to numbers that attention uses, such as the logits of gates."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.model.attend import Stream


class TokenGate(nn.Module):
    """w . x[t] + b, with w [gate, d_model] and b [gate]. w starts as 0: at first, all tokens have
    the same gate.

    Weight decay acts on neither w nor b.
    """

    def __init__(self, start: Float[Tensor, " gate"], d_model: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.zeros(len(start), d_model)),
            nn.Parameter(start.clone()),
        )

    def forward(self, x: Stream) -> Float[Tensor, "batch pos gate"]:
        """Return w . x[t] + b for every token and gate."""
        return F.linear(x, self.weight, self.bias)
