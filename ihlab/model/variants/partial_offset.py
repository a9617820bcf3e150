"""Partial key offset (modded-nanogpt, pull request 169): half of each key is the previous token's,
and not rotated.

    k_hat[t] = (k[t] in half of the channels, k[t - 1] in the others),

where the first token keeps its own key. k[t - 1] fills channels d/4 to d/2 and 3d/4 to d of each
head: the slower half of the rotary pairs, which are not rotated here, in keys and queries. The
angles of the faster half are unchanged. (In the original code, queries and keys are normalised before
the offset, and the whole range of frequencies is spread over the rotated half.)

It is K-only shifting (equation 5 of arXiv 2411.19574) with fixed weights for each channel: alpha =
(1, 0) in half of the channels, (0, 1) in the others.
"""

import torch

from ihlab.model.attend import Keys, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import previous, with_first
from ihlab.model.kv_cache import Past, earlier, next_positions
from ihlab.model.positions import Rotary


class PartialOffsetAttention(Attention):
    """project q, k, v -> offset half of each key -> rotate the other half -> as `Attention`.

    It adds no parameters. `hook_k` sees the keys after the offset. A cache keeps the last token's
    key.
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        if self.rotary is not None:
            quarter = self.d_head // 4
            frequencies = [cfg.rotary_base ** (-2 * i / self.d_head) for i in range(quarter)]
            frequencies += [0.0] * quarter
            self.rotary = Rotary(self.d_head, cfg.n_ctx, cfg.rotary_base, frequencies)

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the keys, half of each from the token before, and the values."""
        begins = next_positions(cache, x.shape[1]).start == 0
        k, v = super().project(x, cache)
        before = previous(k, earlier(cache, "key", k, 1))
        if begins:
            before = with_first(k, before, cache)
        quarters = torch.arange(self.d_head, device=k.device) // (self.d_head // 4)
        return torch.where(quarters % 2 == 1, before, k), v
