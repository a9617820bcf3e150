"""A shift of the residual stream (`ModelConfig.stream_shift`), as RWKV shifts the input of its
projections.

    x~[t] = x[t] + mu (.) (x[t - 1] - x[t]),

where mu [d_model] has one number per channel, and zeros precede the first token (Peng et al. 2023,
arXiv 2305.13048). Queries, keys and values have one mu here. If all channels share one mu and the
projection has no bias, this is equation 5 of arXiv 2411.19574 with alpha = (1 - mu, mu) in every
head. Mixing before and after the norm differ, because a norm is not linear.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ihlab.model.attend import Stream
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import previous
from ihlab.model.kv_cache import Past
from ihlab.model.shift import TokenMix, token_shift

Before = Float[Tensor, "batch 1 d_model"] | Past | None


class InputShift(TokenMix):
    """x + mu (.) (Sx - x) with learned mu [d_model], S the shift by one token."""

    def __init__(self, mu: Float[Tensor, " d_model"]) -> None:
        super().__init__()
        self.mu = nn.Parameter(mu)

    def forward(self, x: Stream, before: Before = None) -> Stream:
        """Mix x with the previous tokens; `before` is as in `previous`."""
        weight = torch.stack([1 - self.mu, self.mu])[None]
        if isinstance(before, Tensor):
            before = before[:, :, None]
        return token_shift(x[:, :, None], weight, before)[:, :, 0]

    def of_previous(self, x: Stream, before: Before = None) -> Stream:
        """Return mu (.) Sx alone."""
        return previous(x, before) * self.mu.to(x.dtype)


def initial_mu(cfg: ModelConfig, layer: int) -> Float[Tensor, " d_model"]:
    """Return RWKV-6's initial mu of keys, 1 - (i / d)^(1 - l / L) for channel i of d and layer l of
    L.
    """
    channel = torch.arange(cfg.d_model) / cfg.d_model
    return 1 - channel ** (1 - layer / cfg.n_layers)
