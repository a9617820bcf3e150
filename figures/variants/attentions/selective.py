"""Selective attention (Leviathan et al. 2024, arXiv 2410.02703): a token can hide earlier tokens
from later ones.

Let l^h be the scores of head h (ALiBi's bias and the causal mask included). The first head's scores
also select:

    Sel_{tj} = relu(l^0_{tj}) for 0 < j < t, otherwise 0,    F_{tj} = sum over i < t of Sel_{ij},

and every head of the layer attends by softmax(l^h - F). It adds no parameters. The definition
follows the paper's description and agrees with the public ports of its listing. Key 0 is exempt
because in the paper it is the beginning-of-sequence token. In sequences without one, an ordinary
token is exempt.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Keys, Queries, Values, explicit_pattern, read_values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past
from ihlab.model.positions import Positions, as_tensor


class SelectiveAttention(Attention):
    """project q, k, v -> rotary or ALiBi -> scores -> minus earlier tokens' selection -> softmax ->
    values -> output.

    It has the hooks of `Attention`, and

    - hook_selection [batch, query, key]: Sel, each query's selection;
    - hook_masked [batch, query, key]: F, the selection of all tokens before each query.
      hook_attn_scores sees the scores minus F.

    A query's result depends on earlier queries, so queries cannot be gathered at some positions
    only, and scores are always explicit. It reads whole sequences: it does not decode with a cache.
    """

    additive_scores = False
    queries_alone = False

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        self.hook_selection, self.hook_masked = HookPoint(), HookPoint()

    def _attend(
        self, q: Queries, k: Keys, v: Values, positions: Positions, cache: Past | None
    ) -> Queries:
        """Return z, for rotated queries of whole sequences."""
        bias = self.score_bias(k, positions)
        selection = self.hook_selection(
            self._selection(q[:, :, 0], k[:, :, 0], bias[:, 0], positions)
        )
        masked = F.pad(selection.cumsum(dim=1), (0, 0, 1, -1))  # up to the query before
        bias = bias - self.hook_masked(masked)[:, None]
        pattern = explicit_pattern(q, k, bias, self.hook_attn_scores, self.hook_pattern)
        return read_values(pattern, v, self.dropout if self.training else 0.0)

    @staticmethod
    def _selection(
        q: Float[Tensor, "batch query d_head"],
        k: Float[Tensor, "batch key d_head"],
        bias: Float[Tensor, "#batch query key"],
        positions: Positions,
    ) -> Float[Tensor, "batch query key"]:
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(q.shape[-1]) + bias
        keys = torch.arange(k.shape[1], device=k.device)
        itself = keys == as_tensor(positions, k.device)[:, :, None]
        return scores.relu().masked_fill(itself | (keys == 0), 0)
