"""A shift of the residual stream (`ModelConfig.stream_shift`), as RWKV shifts the input of its
projections.

    x~[t] = x[t] + mu (.) (x[t - 1] - x[t]),

where mu [d_model] has one number per channel, and zeros precede the first token (Peng et al. 2023,
arXiv 2305.13048). Queries, keys and values have one mu here. If all channels share one mu and the
projection has no bias, this is equation 5 of arXiv 2411.19574 with alpha = (1 - mu, mu) in every
head. Mixing before and after the norm differ, because a norm is not linear.
"""

import torch
from torch import nn

from ihlab.model.attend import Stream
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import previous
from ihlab.model.kv_cache import Past, earlier
from ihlab.model.shift import TokenMix


class InputShift(TokenMix):
    """x + mu (.) (Sx - x) with learned mu [d_model], S the shift by one token."""

    def __init__(self, cfg: ModelConfig, layer: int) -> None:
        """Start with RWKV-6's mu of keys, 1 - (i / d)^(1 - l / L) for channel i of d and layer l of
        L.
        """
        super().__init__()
        channel = torch.arange(cfg.d_model) / cfg.d_model
        self.mu = nn.Parameter(1 - channel ** (1 - layer / cfg.n_layers))

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Mix x with the previous tokens. With a cache, x continues its sequences."""
        return x * (1 - self.mu).to(x.dtype) + self.of_previous(x, cache)

    def of_previous(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return mu (.) Sx alone."""
        return previous(x, earlier(cache, "stream", x, 1)) * self.mu.to(x.dtype)
