"""The token shift: what turns attention into KV shifting attention."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class TokenShift(nn.Module):
    """Mix each head's vector with those of the tokens before it (arXiv 2411.19574, equation 5).

        x_hat[t] = w[0] x[t] + w[1] x[t - 1] + ... + w[window - 1] x[t - window + 1],

    with zeros before the first token. `weight` is [head, window]: for keys, column 0 is the paper's
    alpha1 and column 1 its alpha2; for values beta1 and beta2. A fresh shift draws column 0 from
    U(0, 1) and shares 1 minus it equally among the others, so that a row sums to 1 (window 2: the
    paper's alpha2 = 1 - alpha1); all columns are free afterwards.
    """

    def __init__(self, n_heads: int, window: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        own = torch.rand(n_heads, 1, generator=generator)
        earlier = ((1 - own) / (window - 1)).expand(-1, window - 1)
        self.weight = nn.Parameter(torch.cat([own, earlier], dim=1))

    def forward(
        self,
        x: Float[Tensor, "batch pos head d_head"],
        weight: Float[Tensor, "head window"] | None = None,
        before: Float[Tensor, "batch earlier head d_head"] | None = None,
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Shift with this module's weight, or with the one given (a hooked copy of it).

        `before`, the vectors of the window - 1 tokens before x, stands for the zeros where x goes on with a row.
        """
        w = self.weight if weight is None else weight
        # Spread over d_head first: a CPU multiplies (and sums the gradient) along a broadcast last axis
        # several times slower than along a plain one.
        wide = w.T[:, :, None].expand(-1, -1, x.shape[-1]).to(x.dtype).contiguous()
        if torch.compiler.is_compiling() and before is None:
            return _MixedByHand.apply(x, wide)
        seen = x if before is None else torch.cat([before, x], dim=1)
        mixed = seen * wide[0]
        for back in range(1, min(len(wide), seen.shape[1])):
            mixed = mixed + F.pad(seen, (0, 0, 0, 0, back, -back)) * wide[back]
        return mixed if before is None else mixed[:, before.shape[1] :]


class _MixedByHand(torch.autograd.Function):
    """The sum over r of wide[r] x[t - r], of x [batch, pos, head, d_head] and wide [window, head, d_head].

    With its gradient written out, for the compiler: of autograd's it makes a shifted copy of x in memory, kept for the
    backward pass, which costs more than all the arithmetic. Without a compiler the copy costs no more than the calls
    of this do, and of stacked or single tokens much less (docs/LOG.md).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, wide: Tensor) -> Tensor:
        mixed = x * wide[0]
        for back in range(1, min(len(wide), x.shape[1])):
            mixed[:, back:] += x[:, :-back] * wide[back]
        return mixed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, wide = ctx.saved_tensors
        grad_x, grad_wide = grad * wide[0], [(grad * x).sum(dim=(0, 1))]
        for back in range(1, min(len(wide), x.shape[1])):
            grad_x[:, :-back] += grad[:, back:] * wide[back]
            grad_wide.append((grad[:, back:] * x[:, :-back]).sum(dim=(0, 1)))
        unused = len(wide) - len(grad_wide)  # a row shorter than the window
        return grad_x, torch.stack(grad_wide + unused * [torch.zeros_like(wide[0])])
