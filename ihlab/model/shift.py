"""The token shift of keys and values: equation 5 of arXiv 2411.19574, and where its weights start.

    x_hat[t] = w[0] x[t] + w[1] x[t - 1] + ... + w[window - 1] x[t - window + 1],

with zeros before the first token. w is alpha for keys and beta for values: the paper's alpha1, beta1 are w[0], and its
alpha2, beta2 are w[1].
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.model.config import ModelConfig
from ihlab.model.shift_grad import ShiftWithGradient


def token_shift(
    x: Float[Tensor, "batch pos head d_head"],
    weight: Float[Tensor, "head window"],
    before: Float[Tensor, "batch earlier head d_head"] | None = None,
) -> Float[Tensor, "batch pos head d_head"]:
    """Mix each head's vector with those of the tokens before it: equation 5, with a row of weights for each head.

    `before`, the vectors of the window - 1 tokens before x, stands for the zeros where x continues a row.
    """
    # Spread over d_head first: a CPU multiplies (and sums the gradient) along a broadcast last axis
    # several times slower than along a plain one.
    wide = weight.T[:, :, None].expand(-1, -1, x.shape[-1]).to(x.dtype).contiguous()
    if torch.compiler.is_compiling() and before is None:
        return ShiftWithGradient.apply(x, wide)
    seen = x if before is None else torch.cat([before, x], dim=1)
    mixed = seen * wide[0]
    for back in range(1, min(len(wide), seen.shape[1])):
        mixed = mixed + F.pad(seen, (0, 0, 0, 0, back, -back)) * wide[back]
    return mixed if before is None else mixed[:, before.shape[1] :]


def start(own: Float[Tensor, "head 1"], window: int) -> Float[Tensor, "head window"]:
    """Return the weights that a shift starts from: column 0 is `own`, the others share 1 - `own` equally.

    So a row sums to 1. With window 2 it is the paper's alpha2 = 1 - alpha1, beta2 = 1 - beta1.
    """
    earlier = ((1 - own) / (window - 1)).expand(-1, window - 1)
    return torch.cat([own, earlier], dim=1)


class TokenShift(nn.Module):
    """`token_shift` with learned weights [head, window]: alpha of the keys, or beta of the values.

    A fresh shift draws column 0 from U(0, 1), and the other columns follow by `start`; all are free afterwards.
    """

    def __init__(self, n_heads: int, window: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(start(torch.rand(n_heads, 1, generator=generator), window))

    def forward(
        self,
        x: Float[Tensor, "batch pos head d_head"],
        hook: Callable[[Tensor], Tensor] | None = None,
        before: Float[Tensor, "batch earlier head d_head"] | None = None,
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Shift x by what the hook returns for these weights; `before` is that of `token_shift`."""
        # The hook is given a copy: it may write into it, and must not write into the parameter.
        weight = self.weight if hook is None else hook(self.weight.clone())
        return token_shift(x, weight, before)

    @torch.no_grad()
    def restart(self, own: float) -> None:
        """Start every head's row from one number instead of a draw."""
        n_heads, window = self.weight.shape
        self.weight.copy_(start(torch.full((n_heads, 1), own, dtype=torch.float64), window))


def make_shifts(cfg: ModelConfig, generator: torch.Generator | None) -> tuple[TokenShift, TokenShift]:
    """Return the shifts of a layer's keys and values, as `cfg.attention` asks for them (`VARIANTS`)."""
    key, value = (TokenShift(cfg.kv_heads, cfg.shift_window, generator) for _ in range(2))
    return key, value
