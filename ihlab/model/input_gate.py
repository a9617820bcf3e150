"""KV shifting gates that see the token: equation 5 of arXiv 2411.19574 with weights that depend on the data.

    x_hat[t] = a[t] x[t] + (1 - a[t]) x[t - 1],   a[t] = sigmoid(w . u[t] + A),

u what attention reads, w [d_model] and A of each key/value head: a head can shift at some tokens and not at others.
With w = 0 it is the paper's gate (Appendix F.1, "kv_gate"), and it starts as that.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache, earlier
from ihlab.model.shift import GatedShift, TokenMix


class InputGate(TokenMix):
    """The gate of keys or of values. w starts as 0 and A as the logit of U(0, 1), the draws of `GatedShift`."""

    def __init__(self, n_heads: int, d_model: int, generator: torch.Generator | None) -> None:
        super().__init__()
        drawn = GatedShift(n_heads, 2, generator).weight.detach()[:, 0]
        self.weight = nn.Parameter(torch.zeros(n_heads, d_model))
        self.bias = nn.Parameter(drawn.clone())

    def forward(
        self,
        x: Float[Tensor, "batch pos head d_head"],
        read: Float[Tensor, "batch pos d_model"],
        hook: HookPoint,
        cache: KVCache | None,
        what: str,
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Shift keys or values x as `read` says; the hook is given a [batch, pos, head]."""
        own = hook(F.linear(read, self.weight, self.bias).sigmoid())[..., None]
        before = earlier(cache, what, x, 1)
        first = torch.zeros_like(x[:, :1]) if before is None else before
        return own * x + (1 - own) * torch.cat([first, x[:, :-1]], dim=1)


def make_input_gates(cfg: ModelConfig, generator: torch.Generator | None) -> nn.ModuleDict:
    """Return the gates of a layer's "key" and "value"; none but for attention that has them."""
    names = ("key", "value") if cfg.attention == "input_gate" else ()
    return nn.ModuleDict({name: InputGate(cfg.kv_heads, cfg.d_model, generator) for name in names})
