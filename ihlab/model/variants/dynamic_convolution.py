"""Dynamic short convolution (Inkling 2, `transformers`' `Inkling2DynamicShortConvolution`) of keys
and of values.

    y[t] = (u[t] + sum over j of (s[j, c] + (W x[t])[j]) u[t - j]) / sqrt(2 w + 1),   j = 0 .. w - 1,  w = 4,

where u are the keys or values of a head after their projection, c is a channel, and x is
attention's input. At the start s is 0. W has one row per head and tap. If W = 0, it is equation 5
of arXiv 2411.19574 with a window of 4 and one weight per channel: 1 + s[0], s[1], s[2], s[3], all
divided by 3. Left out: the norm of values and the limit on the length of keys.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.model.attend import Heads, Keys, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import shifted
from ihlab.model.kv_cache import Past, earlier
from ihlab.model.shift import TokenMix, spawned, token_shift

TAPS = 4


class DynamicConvolution(TokenMix):
    """The convolution of keys or of values. W starts as N(0, 1 / d_model), like other maps of the
    residual stream.
    """

    def __init__(self, n_heads: int, cfg: ModelConfig, generator: torch.Generator | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_heads, TAPS, cfg.head_width))
        drawn = torch.randn(n_heads * TAPS, cfg.d_model, generator=generator)
        self.of_input = nn.Parameter(drawn * cfg.d_model**-0.5)

    def forward(self, u: Heads, x: Stream, cache: Past | None, place: str) -> Heads:
        """Convolve u along its tokens. With a cache, u continues its sequences and is stored with
        the key `place`.
        """
        before = earlier(cache, place, u, TAPS - 1)
        with_earlier = torch.cat([before, u], dim=1) if isinstance(before, Tensor) else u
        dynamic = F.linear(x, self.of_input).unflatten(-1, (-1, TAPS))
        total = u + token_shift(u, self.weight, before)
        for back in range(min(TAPS, with_earlier.shape[1])):
            total = (
                total
                + dynamic[..., back, None] * shifted(with_earlier, before, back)[:, -u.shape[1] :]
            )
        return total / (2 * TAPS + 1) ** 0.5


class DynamicConvolutionAttention(Attention):
    """project q, k, v -> convolve k and v -> as `Attention`. hook_k and hook_v see them after the
    convolution.
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        source = spawned(generator, layer, 11)
        parts = ("key", "value")
        self.dynamic = nn.ModuleDict(
            {side: DynamicConvolution(cfg.kv_heads, cfg, source) for side in parts}
        )

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the convolved keys and values, before rotation."""
        k, v = super().project(x, cache)
        return self.dynamic["key"](k, x, cache, "key"), self.dynamic["value"](v, x, cache, "value")
