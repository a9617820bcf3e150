"""The token shift with its gradient written out, for the compiler.

With autograd's gradient the compiler keeps a shifted copy of x in memory for the backward pass, which costs more than
all the arithmetic; so it does wherever the backward pass shifts x as the forward pass did. Here it shifts the gradient
alone. Without the compiler that copy costs no more than calling this does, and for single tokens much less.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def mix_tokens(x: Tensor, wide: Tensor) -> Tensor:
    """Return the sum over r of wide[r] x[t - r], of x [batch, pos, head, d_head] and wide [window, head, d_head].

    It is `ihlab.model.shift.token_shift` with weights spread over d_head.
    """
    total = x * wide[0]
    for back in range(1, min(len(wide), x.shape[1])):
        total = total + _moved(x, back) * wide[back]
    return total


class ShiftWithGradient(torch.autograd.Function):
    """`mix_tokens`, and its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, wide: Tensor) -> Tensor:
        """Mix every vector with those before it in its row."""
        return mix_tokens(x, wide)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep x and wide for the backward pass."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of x[t], sum over r of wide[r] grad[t + r], and of wide[r], sum of grad[t + r] x[t]."""
        x, wide = ctx.saved_tensors
        grad_x, grad_wide = grad * wide[0], [(grad * x).sum(dim=(0, 1))]
        for back in range(1, min(len(wide), x.shape[1])):
            later = _moved(grad, -back)
            grad_x = grad_x + later * wide[back]
            grad_wide.append((later * x).sum(dim=(0, 1)))
        unused = len(wide) - len(grad_wide)  # a row shorter than the window
        return grad_x, torch.stack(grad_wide + unused * [torch.zeros_like(wide[0])])


def _moved(x: Tensor, by: int) -> Tensor:
    """Return x moved to later positions, by a negative number to earlier ones, with zeros where nothing comes to."""
    return F.pad(x, (0, 0, 0, 0, by, -by))
