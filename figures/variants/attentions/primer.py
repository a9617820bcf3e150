"""Primer's multi-DConv-head attention: queries, keys and values are each convolved along their
tokens.

So et al. 2021 (arXiv 2109.08668) apply a depthwise causal convolution with a kernel of 3 after the
projections. If all channels of a head share taps, it is equation 5 of arXiv 2411.19574 with a
window of 3, and queries shifted too.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.mixes.depthwise import Depthwise


class PrimerAttention(Attention):
    """project q, k, v -> convolve each channel -> rotary or ALiBi -> scores -> softmax -> values ->
    output.
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        heads = {"query": cfg.n_heads, "key": cfg.kv_heads, "value": cfg.kv_heads}
        for side, n_heads in heads.items():
            self.convolution[side] = Depthwise(taps(n_heads, cfg.head_width), side, residual=False)


def taps(n_heads: int, d_head: int) -> Float[Tensor, "head 3 d_head"]:
    """Return Primer's initial taps: 1/2 for the current token, 1/6 for each of the two before it."""
    return torch.tensor([1 / 2, 1 / 6, 1 / 6])[:, None].repeat(n_heads, 1, d_head)
