"""Differential attention (Ye et al. 2024, arXiv 2410.05258): the difference of two patterns.

    A = softmax(q1 . k1 / sqrt(d)) - lambda softmax(q2 . k2 / sqrt(d)),    z = (1 - lambda_init) RMSNorm(A v),
    lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init,

with queries and keys in two halves of width d = d_head / 2, values of width 2 d, one lambda for all
heads of a layer, and lambda_init = 0.8 - 0.6 exp(-0.3 layer), with layers counted from 0. With half
of a baseline's `n_heads`, the queries and keys of each half are as wide as the baseline's, and the
weight matrices have the same size.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import (
    Keys,
    Queries,
    Values,
    explicit_pattern,
    fused,
    is_hooked,
    read_values,
)
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past
from ihlab.model.norm import RMSNorm
from ihlab.model.positions import Positions, Rotary


class DifferentialAttention(Attention):
    """project q, k, v -> rotary on each half -> two patterns -> their difference -> values -> norm
    -> output.

    It has the hooks of `Attention` except hook_attn_scores, and

    - hook_attn_scores_1, hook_attn_scores_2, hook_pattern_1, hook_pattern_2 [batch, h, query, key]:
      for each half;
    - hook_lambda [1]; hook_pattern is pattern_1 - lambda pattern_2, with negative entries and rows
      that sum to 1 - lambda;
    - hook_z_raw [batch, pos, h, d_head]: pattern @ v; hook_z: the same normalised (`sub_norm`, with
      the hooks of `RMSNorm`) and times 1 - lambda_init, so that z @ W_O is each head's output.

    The lambda vectors start as N(0, 0.1^2). In training, dropout acts on the difference, after its
    hook.
    """

    additive_scores = False

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        half = self.d_head // 2
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(0.1 * torch.randn(half, generator=generator)) for _ in range(4)
        )
        self.sub_norm = RMSNorm(self.d_head, 1e-5)
        if self.rotary is not None:
            self.rotary = HalvesRotary(half, cfg.n_ctx, cfg.rotary_base)
        del self.hook_attn_scores
        self.hook_attn_scores_1, self.hook_attn_scores_2 = HookPoint(), HookPoint()
        self.hook_pattern_1, self.hook_pattern_2, self.hook_lambda = (
            HookPoint(),
            HookPoint(),
            HookPoint(),
        )
        self.hook_z_raw = HookPoint()

    @property
    def lambda_weight(self) -> Float[Tensor, "1"]:
        """Lambda, the weight of the second pattern."""
        first, second = self.lambda_q1 @ self.lambda_k1, self.lambda_q2 @ self.lambda_k2
        return (first.exp() - second.exp() + self.lambda_init)[None]

    def _attend(
        self, q: Queries, k: Keys, v: Values, positions: Positions, cache: Past | None
    ) -> Queries:
        weight = self.hook_lambda(self.lambda_weight)
        first, second = zip(q.chunk(2, dim=-1), k.chunk(2, dim=-1), strict=True)
        of_first, of_second = (
            (self.hook_attn_scores_1, self.hook_pattern_1),
            (self.hook_attn_scores_2, self.hook_pattern_2),
        )
        dropout = self.dropout if self.training else 0.0
        if dropout or is_hooked(*of_first, *of_second, self.hook_pattern):
            bias = self.masked_bias(k, positions, cache)
            one, two = (
                explicit_pattern(*first, bias, *of_first),
                explicit_pattern(*second, bias, *of_second),
            )
            z = read_values(self.hook_pattern(one - weight * two), v, dropout)
        else:
            needed = self._fused_bias(k, positions, cache)
            z = (fused(*first, v, needed, 0.0) - weight * fused(*second, v, needed, 0.0)).to(
                v.dtype
            )
        return (1 - self.lambda_init) * self.sub_norm(self.hook_z_raw(z))


class HalvesRotary(Rotary):
    """`Rotary` on each half of every head, as if the half were a head."""

    def forward(self, x: Queries, positions: Positions | None = None) -> Queries:
        """Rotate by the angles of each position; without positions they are 0, 1, 2, ..."""
        halves = x.unflatten(-1, (2, -1)).flatten(2, 3)
        return super().forward(halves, positions).unflatten(2, (-1, 2)).flatten(3)
