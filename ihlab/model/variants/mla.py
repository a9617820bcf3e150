"""Multi-head latent attention (MLA), plain and with a shifted key and value: Appendix J of arXiv 2411.19574.

MLA (DeepSeek-V2, arXiv 2405.04434) makes the keys and values of all heads from one latent vector of each token,

    c_t = W_D x_t  in R^r,    k_t = (W_UK c_t, R_t W_KR x_t),    v_t = W_UV c_t,    q_t = (q^C_t, R_t q^R_t),

where all heads share the rotated part of the keys. Scores are q . k / sqrt(d_head) over all channels. A cache stores
only c and W_KR x of each token.

The appendix has d_model 768, 12 heads, r = 256, 32 rotated and 32 unrotated channels, and no low-rank
queries. It does not say how wide values are, whether c is normalised, which heads are shifted, or whether the shifted
head's rotated part is shifted too. Here values are d_head wide, c is not normalised, the first head's key and the last
head's value are shifted, and the rotated part, which all heads share, is not.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Heads, Keys, Queries, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache, Past
from ihlab.model.positions import Positions, Rotary
from ihlab.model.shift import TokenShift


class LatentAttention(Attention):
    """latent -> keys and values -> shift ("mla_kv") -> rotary on the shared part -> scores -> softmax -> output.

    Here r = `cfg.latent_rank`, w = `cfg.rope_width`, and the last w of a head's d_head channels are rotated:

    - hook_latent [batch, pos, r]: c;
    - hook_k, hook_rot_k and the others: as in `Attention`, with the shared part repeated for each head;
    - hook_alpha [h, 2, d_head] and hook_beta [h, 2], only for "mla_kv": (0, 1) where shifted, otherwise (1, 0).

    A cache holds the latent vectors, so keys and values are computed again: hook_k, hook_v, hook_rot_k, hook_k_raw and
    hook_v_raw see all tokens so far in each call.
    """

    def __init__(self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0) -> None:
        super().__init__(cfg, generator, layer)
        self.hook_latent = HookPoint()
        if self.rotary is not None:
            self.rotary = TailRotary(cfg.rope_width, cfg.n_ctx, cfg.rotary_base)

    def _make_key_value_maps(self, cfg: ModelConfig) -> None:
        rank, unrotated = cfg.latent_rank, self.d_head - cfg.rope_width
        self.kv_down = nn.Linear(cfg.d_model, rank, bias=False)
        self.k_up = nn.Linear(rank, self.n_heads * unrotated, bias=False)
        self.v_up = nn.Linear(rank, self.n_heads * self.d_head, bias=False)
        self.k_rope = nn.Linear(cfg.d_model, cfg.rope_width, bias=False) if cfg.rope_width else None

    @staticmethod
    def _make_shifts(
        cfg: ModelConfig, generator: torch.Generator | None, layer: int
    ) -> tuple[TokenShift | None, TokenShift | None, None]:
        if cfg.attention == "mla":
            return None, None, None
        current, before = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        beta = current.repeat(cfg.n_heads, 1)
        alpha = current[:, None].repeat(cfg.n_heads, 1, cfg.head_width)
        alpha[0, :, : cfg.head_width - cfg.rope_width] = before[:, None]
        beta[-1] = before
        return FixedShift(alpha), FixedShift(beta), None

    def keys_values(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the shifted and rotated keys and the shifted values of all tokens, including those in the cache."""
        shared, latent = self._compressed(x)
        if isinstance(cache, KVCache):  # all tokens so far are expanded again, from the first on
            shared, latent = (cached[:, :, 0] for cached in cache.append(shared[:, :, None], latent[:, :, None]))
            cache = None
        return self.shifted_and_rotated(*self._expanded(shared, latent), cache)

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Heads, Heads]:
        """Return the keys and values before any shift or rotation."""
        return self._expanded(*self._compressed(x))

    def _compressed(self, x: Stream) -> tuple[Float[Tensor, "batch pos rope"], Float[Tensor, "batch pos rank"]]:
        """Return the tensors that the cache stores per token: the keys' shared part before its rotation, and c."""
        latent = self.hook_latent(self.kv_down(x))
        return latent[..., :0] if self.k_rope is None else self.k_rope(x), latent

    def _expanded(
        self, shared: Float[Tensor, "batch pos rope"], latent: Float[Tensor, "batch pos rank"]
    ) -> tuple[Heads, Heads]:
        k, v = self._heads(self.k_up(latent), self.n_heads), self._heads(self.v_up(latent), self.n_heads)
        return torch.cat([k, shared[:, :, None].expand(-1, -1, self.n_heads, -1).to(k.dtype)], dim=-1), v

    @property
    def W_K(self) -> Float[Tensor, "head d_model d_head"]:
        """The key weights (W_UK W_D, W_KR) of each head. They are a copy, unlike vanilla attention's view."""
        up = self.k_up.weight.unflatten(0, (self.n_heads, -1))
        weight = (up @ self.kv_down.weight).mT
        if self.k_rope is None:
            return weight
        return torch.cat([weight, self.k_rope.weight.T.expand(self.n_heads, -1, -1)], dim=-1)

    @property
    def W_V(self) -> Float[Tensor, "head d_model d_head"]:
        """The value weights W_UV W_D of each head. They are a copy, like `W_K`."""
        return (self.v_up.weight.unflatten(0, (self.n_heads, -1)) @ self.kv_down.weight).mT

    @property
    def b_K(self) -> Float[Tensor, "head d_head"]:
        """Zeros: these maps have no biases."""
        return self.q_proj.weight.new_zeros(self.n_heads, self.d_head)

    @property
    def b_V(self) -> Float[Tensor, "head d_head"]:
        """Zeros: these maps have no biases."""
        return self.b_K


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
