"""Attention with an output gate (Qiu et al. 2025, arXiv 2505.06708; also an option of arXiv
2503.02130).

    z[t] <- sigmoid(W_g x[t] + b) (.) z[t]

for each channel of each head, before W_O; x is attention's input. The gate depends only on the
query token. With gates of 1 it is vanilla attention. W_g and b start as 0, so gates start as 1/2.
"""

import torch
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Stream
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past, next_positions
from ihlab.model.variants.token_gate import TokenGate


class OutputGatedAttention(Attention):
    """`Attention` with output gates. hook_out_gate [batch, pos, n_heads, d_head]: the gates;
    hook_z_raw: pattern @ v.

    hook_z sees what W_O reads: z after the gate.
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        self.out_gate = TokenGate(torch.zeros(cfg.n_heads * cfg.head_width), cfg.d_model)
        self.hook_out_gate, self.hook_z_raw = HookPoint(), HookPoint()

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the sum of the heads' outputs for the normalised residual stream x; add its tokens
        to the cache.
        """
        positions = next_positions(cache, x.shape[1])
        q, (k, v) = (
            self.rotated(self.queries(x, cache=cache), positions),
            self.keys_values(x, cache),
        )
        z = self.hook_z_raw(self._attend(q, k, v, positions, cache))
        return self.output(
            self.hook_out_gate(self._heads(self.out_gate(x).sigmoid(), self.n_heads)) * z
        )
