"""Multi-head latent attention (MLA), plain and with a shifted key and value: Appendix J of arXiv
2411.19574.

MLA (DeepSeek-V2, arXiv 2405.04434) makes the keys and values of all heads from one latent vector of
each token,

    c_t = W_D x_t  in R^r,    k_t = (W_UK c_t, R_t W_KR x_t),    v_t = W_UV c_t,    q_t = (q^C_t, R_t q^R_t),

where all heads share the rotated part of the keys. Scores are q . k / sqrt(d_head) over all
channels. A cache of MLA would store only c and W_KR x of each token; here it stores keys and
values.

The appendix has d_model 768, 12 heads, r = 256, 32 rotated and 32 unrotated channels, and no
low-rank queries. It does not say how wide values are, whether c is normalised, which heads are
shifted, or whether the shifted head's rotated part is shifted too. Here values are d_head wide, c
is not normalised, the first head's key and the last head's value are shifted, and the rotated part,
which all heads share, is not.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Keys, Queries, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past
from ihlab.model.positions import Positions, Rotary
from ihlab.model.shift import TokenShift


def rope_width(cfg: ModelConfig) -> int:
    """Return the number of a head's channels that are rotated: half, and even (the paper's 32 of
    64).
    """
    if cfg.positional != "rope":
        return 0
    return max(2, 2 * (cfg.head_width // 4))


class LatentAttention(Attention):
    """latent -> keys and values -> rotary on the shared part -> scores -> softmax -> output.

    Here r = `rank`, and the last `rope_width` of a head's d_head channels are rotated. Hook points
    are those of `Attention`, with the shared part repeated for each head, and hook_latent [batch,
    pos, r]: c.
    """

    rank: int | None = None
    """Width of the latent vector. None: d_model / 3, rounded down (the paper's 256 of 768)."""

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        self.hook_latent = HookPoint()
        if self.rotary is not None:
            self.rotary = TailRotary(rope_width(cfg), cfg.n_ctx, cfg.rotary_base)

    def _make_key_value_maps(self, cfg: ModelConfig) -> None:
        rank = max(1, cfg.d_model // 3) if self.rank is None else self.rank
        rotated = rope_width(cfg)
        self.kv_down = nn.Linear(cfg.d_model, rank, bias=False)
        self.k_up = nn.Linear(rank, self.n_heads * (self.d_head - rotated), bias=False)
        self.v_up = nn.Linear(rank, self.n_heads * self.d_head, bias=False)
        self.k_rope = nn.Linear(cfg.d_model, rotated, bias=False) if rotated else None

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the keys and values before any shift or rotation."""
        latent = self.hook_latent(self.kv_down(x))
        k = self._heads(self.k_up(latent), self.n_heads)
        v = self._heads(self.v_up(latent), self.n_heads)
        if self.k_rope is None:
            return k, v
        shared = self.k_rope(x)[:, :, None].expand(-1, -1, self.n_heads, -1)
        return torch.cat([k, shared.to(k.dtype)], dim=-1), v


class ShiftedLatentAttention(LatentAttention):
    """Latent attention in which the first head's key and the last head's value are the previous
    token's.

    hook_alpha [h, 2, d_head] and hook_beta [h, 2] are (0, 1) where shifted, otherwise (1, 0).
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        current, before = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        beta = current.repeat(cfg.n_heads, 1)
        alpha = current[:, None].repeat(cfg.n_heads, 1, cfg.head_width)
        alpha[0, :, : cfg.head_width - rope_width(cfg)] = before[:, None]
        beta[-1] = before
        self.key_shift, self.value_shift = FixedShift(alpha), FixedShift(beta)
        self._make_shift_hooks()


class TailRotary(Rotary):
    """`Rotary` on the last `width` channels of each head; the others stay as they are."""

    def __init__(self, width: int, n_ctx: int, base: float) -> None:
        super().__init__(width, n_ctx, base)
        self.width = width

    def forward(self, x: Queries, positions: Positions | None = None) -> Queries:
        """Rotate by the angles of each position; without positions they are 0, 1, 2, ..."""
        still, rotated = x.split([x.shape[-1] - self.width, self.width], dim=-1)
        return torch.cat([still, super().forward(rotated, positions)], dim=-1)


class FixedShift(TokenShift):
    """`TokenShift` with given weights that are not learned: a buffer that checkpoints do not store."""

    weight: Tensor  # type: ignore[assignment]

    def __init__(self, rows: Float[Tensor, "head window *d_head"]) -> None:
        nn.Module.__init__(self)
        self.n_heads, self.window = rows.shape[:2]
        self.register_buffer("weight", rows, persistent=False)
