"""Gated linear recurrences: attention without softmax, with a matrix S per key/value head as its
state.

    S[t] = a[t] S[t - 1] + b[t] k[t] v[t]^T,    z[t] = S[t]^T q[t],
    b[t] = softplus(w . x[t] + c),              a[t] = exp(-A b[t])

This is a small Mamba-2 (Dao and Gu 2024, arXiv 2405.21060), whose dt, B, C and x are b, k, q and v.
Each head has its A > 0, w [d_model] and c, and x[t] is attention's input. Left out: SiLU, skip
connection, output gate and output norm. Queries and keys are normalised to length 1, as in Gated
DeltaNet's code. With a = b = 1 it is linear attention. In parallel over tokens it is a masked
matrix product, z = kernel @ v:

    kernel[t, s] = (q[t] . k[s]) b[s] a[s + 1] ... a[t]  for s <= t, otherwise 0.

`canon="B"` adds the short convolution (kernel 4) of queries, keys and values that Mamba-2 and Gated
DeltaNet have: with taps w, their convolution has the taps w[0] + 1, w[1], w[2], w[3]. They encode
no positions: `positional="none"`.

`ihlab.model.variants.delta_rule` is another recurrence of this form.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Keys, Queries, Stream, Values, read_values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache, Past, next_positions
from ihlab.model.shift import spawned
from ihlab.model.variants.token_gate import TokenGate

Gates = tuple[Float[Tensor, "batch *pos kv_head"], ...]
"""log a, b, and the other gates of a subclass."""

State = Float[Tensor, "batch kv_head d_head d_value"]
Weights = Float[Tensor, "batch kv_head query key"]

SLOWEST, FASTEST = 0.001, 0.1
"""A starts log-uniform between these, and b starts as 1, so S decays by a factor e in 10 to 1,000
tokens.
"""


class LinearRecurrence(Attention):
    """project q, k, v -> convolve -> rotary -> normalise q and k -> recurrence -> output.

    - hook_q, hook_k, hook_v, hook_rot_q, hook_rot_k, hook_z, hook_result as in `Attention`;
    - hook_log_decay, hook_write [batch, pos, n_key_value_heads]: log a and b;
    - hook_kernel [batch, n_heads, query, key]: z = kernel @ v. Rows do not sum to 1, and entries
      can be negative. It is not a pattern: there are no hook_attn_scores and hook_pattern, and
      dropout does not act on it.

    A cache stores S instead of keys and values. Decoding goes token by token, without hook_kernel.
    """

    additive_scores = False

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        source, span = spawned(generator, layer, 6), math.log(FASTEST / SLOWEST)
        self.log_rate = nn.Parameter(
            math.log(SLOWEST) + span * torch.rand(cfg.kv_heads, generator=source)
        )
        self.write = TokenGate(
            torch.full((cfg.kv_heads,), math.log(math.e - 1)), cfg.d_model
        )  # softplus of it is 1

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the sum of the heads' outputs for the normalised residual stream x, and update the
        cache.
        """
        positions = next_positions(cache, x.shape[1])
        q = self.rotated(self.queries(x, cache=cache), positions)
        k, v = self.shifted_and_rotated(*self.project(x, cache), cache)
        q, k, gates = F.normalize(q, dim=-1), F.normalize(k, dim=-1), self.gates(x)
        if isinstance(cache, KVCache):
            cache.length += x.shape[1]
            return self.output(self._by_steps(q, k, v, gates, cache))
        matches = torch.einsum("btgrd,bsgd->bgrts", q.unflatten(2, (self.n_key_value_heads, -1)), k)
        kernel = self.hook_kernel(self.kernel(matches, k, gates).flatten(1, 2))
        return self.output(read_values(kernel, v, 0.0))

    def gates(self, x: Stream) -> Gates:
        """Return the gates of every token."""
        write = F.softplus(self.write(x))
        return self.hook_log_decay(-self.log_rate.exp() * write), self.hook_write(write)

    @staticmethod
    def kernel(
        matches: Float[Tensor, "batch kv_head group query key"], k: Keys, gates: Gates
    ) -> Float[Tensor, "batch kv_head group query key"]:
        """Return the kernel of each query head, from q . k of all queries and keys."""
        log_decay, write = gates
        return matches * (decay_since(log_decay) * heads_first(write)[:, :, None])[:, :, None]

    @staticmethod
    def step(state: State, k: Tensor, v: Tensor, gates: Gates) -> State:
        """Return S after one more token with this key and value [batch, kv_head, d_head] and gates
        [batch, kv_head].
        """
        log_decay, write = (gate[:, :, None, None] for gate in gates)
        return log_decay.exp() * state + write * outer(k, v)

    def _by_steps(self, q: Queries, k: Keys, v: Values, gates: Gates, cache: KVCache) -> Queries:
        state, read = cache.raw.get("state", torch.zeros_like(outer(k[:, 0], v[:, 0]))), []
        for t in range(k.shape[1]):
            state = self.step(state, k[:, t], v[:, t], tuple(gate[:, t] for gate in gates))
            grouped = q[:, t].unflatten(1, (self.n_key_value_heads, -1))
            read.append(torch.einsum("bgrd,bgde->bgre", grouped, state).flatten(1, 2))
        cache.raw["state"] = state
        return torch.stack(read, dim=1)

    def _make_hook_points(self) -> None:
        super()._make_hook_points()
        del self.hook_attn_scores, self.hook_pattern
        self.hook_log_decay, self.hook_write, self.hook_kernel = (
            HookPoint(),
            HookPoint(),
            HookPoint(),
        )


def outer(
    k: Float[Tensor, "batch kv_head d_head"], v: Float[Tensor, "batch kv_head d_value"]
) -> State:
    """Return k v^T."""
    return k[..., :, None] * v[..., None, :]


def heads_first(gate: Float[Tensor, "batch pos kv_head"]) -> Float[Tensor, "batch kv_head pos"]:
    """Return a gate with its heads before its positions."""
    return gate.transpose(1, 2)


def decay_since(log_decay: Float[Tensor, "batch pos kv_head"]) -> Weights:
    """Return a[s + 1] ... a[t] for every query t and key s <= t; 0 for later keys."""
    total = heads_first(log_decay).cumsum(dim=-1)
    since = total[..., :, None] - total[..., None, :]
    later = torch.ones(since.shape[-2:], dtype=torch.bool, device=since.device).triu(1)
    return since.masked_fill(later, -torch.inf).exp()
