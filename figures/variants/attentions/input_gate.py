"""KV shifting gates that depend on the token: equation 5 of arXiv 2411.19574 with weights computed
from the input.

    x_hat[t] = a[t] x[t] + (1 - a[t]) x[t - 1],   a[t] = sigmoid(w . u[t] + A),

where u is attention's input, and w [d_model] and A are learned per key/value head. So a head can
shift at some tokens and not at others. With w = 0, its initial value, it is the paper's gate
(Appendix F.1, "kv_gate").
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Heads, Keys, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import previous
from ihlab.model.kv_cache import Past, earlier
from ihlab.model.shift import GatedShift, TokenMix


class InputGate(TokenMix):
    """The gate of keys or of values. w starts as 0 and A as the logit of U(0, 1), the draws of
    `GatedShift`.
    """

    def __init__(self, n_heads: int, d_model: int, generator: torch.Generator | None) -> None:
        super().__init__()
        drawn = GatedShift(n_heads, 2, generator).weight.detach()[:, 0]
        self.weight = nn.Parameter(torch.zeros(n_heads, d_model))
        self.bias = nn.Parameter(drawn.clone())

    def forward(
        self,
        x: Heads,
        read: Stream,
        hook: HookPoint,
        before: Float[Tensor, "batch 1 head d_head"] | Past | None,
    ) -> Heads:
        """Shift keys or values x, with gates a computed from attention's input `read`; the hook
        receives a.

        `before`: with a cache, the keys or values of the token before x.
        """
        gate = hook(F.linear(read, self.weight, self.bias).sigmoid())[..., None]
        return gate * x + (1 - gate) * previous(x, before)


class GatedAttention(Attention):
    """project q, k, v -> gate k and v -> as `Attention`. hook_key_gate, hook_value_gate: a [batch,
    pos, g].
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        parts = ("key", "value")
        self.input_gate = nn.ModuleDict(
            {side: InputGate(cfg.kv_heads, cfg.d_model, generator) for side in parts}
        )
        self.hook_key_gate, self.hook_value_gate = HookPoint(), HookPoint()

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Return the gated keys and values, before rotation."""
        k, v = super().project(x, cache)
        k = self.input_gate["key"](k, x, self.hook_key_gate, earlier(cache, "key", k, 1))
        return k, self.input_gate["value"](
            v, x, self.hook_value_gate, earlier(cache, "value", v, 1)
        )
