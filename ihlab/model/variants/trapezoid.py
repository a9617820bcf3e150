"""Mamba-3's trapezoid (Lahoti et al. 2026, arXiv 2603.15569): each key-value pair enters the state
at two tokens.

    S[t] = a[t] S[t - 1] + l[t] d[t] k[t] v[t]^T + (1 - l[t]) d[t] a[t] k[t - 1] v[t - 1]^T,
    d[t] = softplus(w . x[t] + c),    a[t] = exp(-A d[t]),    l[t] = sigmoid(w' . x[t] + c')

for each key/value head. It is the exponential-trapezoidal rule. With l = 1 it is Euler's rule, as
in `recurrence.py`. There is no term k[t - 1] v[t]^T, and no convolution. But the weight on the pair
of token s

    kernel[t, s] = (q[t] . k[s]) (l[s] d[s] + (1 - l[s + 1]) d[s + 1]) a[s + 1] ... a[t]  for s < t,
    kernel[t, t] = (q[t] . k[t]) l[t] d[t]

depends on token s + 1: a head that matches the key of s reads its value with a weight that depends
on the next token. Simplified from Mamba-3: A is one number per head (there, it depends on the
token), queries and keys have no learned bias, and the rotation depends only on positions.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Keys, Stream
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache
from ihlab.model.variants.recurrence import (
    Gates,
    LinearRecurrence,
    State,
    decay_since,
    heads_first,
    outer,
)
from ihlab.model.variants.token_gate import TokenGate


class Trapezoid(LinearRecurrence):
    """`LinearRecurrence` with the trapezoid. hook_write is d; hook_trapezoid [batch, pos,
    n_key_value_heads] is l.

    l starts as 1/2. A cache keeps S, and the last token's k v^T.
    """

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        self.trapezoid = TokenGate(torch.zeros(cfg.kv_heads), cfg.d_model)
        self.hook_trapezoid = HookPoint()

    def gates(self, x: Stream) -> Gates:
        """Return the gates of every token."""
        return (*super().gates(x), self.hook_trapezoid(self.trapezoid(x).sigmoid()))

    @staticmethod
    def kernel(
        matches: Float[Tensor, "batch kv_head group query key"], k: Keys, gates: Gates
    ) -> Float[Tensor, "batch kv_head group query key"]:
        """Return the kernel of each query head."""
        log_decay, write, split = gates
        decay, at_own, at_next = (
            decay_since(log_decay),
            heads_first(split * write),
            heads_first((1 - split) * write),
        )
        weight = (
            decay * at_own[:, :, None]
            + decay.tril(-1) * F.pad(at_next[..., 1:], (0, 1))[:, :, None]
        )
        return matches * weight[:, :, None]

    @staticmethod
    def step(state: State, k: Tensor, v: Tensor, gates: Gates, cache: KVCache) -> State:
        """Return S after one more token, and keep its k v^T."""
        log_decay, write, split = (gate[:, :, None, None] for gate in gates)
        pair = outer(k, v)
        before = cache.raw.get("pair", torch.zeros_like(pair))
        cache.raw["pair"] = pair
        return log_decay.exp() * (state + (1 - split) * write * before) + split * write * pair
