"""The gated delta rule (Yang et al. 2024, Gated DeltaNet, arXiv 2412.06464): a write first removes
the key's old value.

    S[t] = a[t] (I - b[t] k[t] k[t]^T) S[t - 1] + b[t] k[t] v[t]^T,    b[t] = sigmoid(w' . x[t] + c'),

with a from a separate gate, as in `ihlab.model.variants.recurrence`: a[t] = exp(-A softplus(w .
x[t] + c)). With S[t] = a[t] S[t - 1] + k[t] u[t]^T, the updates u of all tokens solve a triangular
system:

    u[t] = b[t] (v[t] - sum over s < t of D[t, s] (k[t] . k[s]) u[s]),    D[t, s] = a[s + 1] ... a[t].

Without the sum over s, it is the gated linear recurrence, with b as its write gate.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ihlab.model.attend import Keys, Stream
from ihlab.model.config import ModelConfig
from ihlab.model.variants.recurrence import (
    Gates,
    LinearRecurrence,
    State,
    decay_since,
    heads_first,
    outer,
)
from ihlab.model.variants.token_gate import TokenGate


class GatedDeltaRule(LinearRecurrence):
    """`LinearRecurrence` with the gated delta rule. hook_write is b, which starts as 1/2."""

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        self.erase = TokenGate(torch.zeros(cfg.kv_heads), cfg.d_model)

    def gates(self, x: Stream) -> Gates:
        """Return the gates of every token."""
        write = self.hook_write(self.erase(x).sigmoid())
        return self.hook_log_decay(-self.log_rate.exp() * F.softplus(self.write(x))), write

    @staticmethod
    def kernel(
        matches: Float[Tensor, "batch kv_head group query key"], k: Keys, gates: Gates
    ) -> Float[Tensor, "batch kv_head group query key"]:
        """Return the kernel of each query head: u = T^-1 diag(b) v, with T = I + the sum's
        coefficients.
        """
        decay, write = decay_since(gates[0]), heads_first(gates[1])
        held = write[..., None] * decay * torch.einsum("btgd,bsgd->bgts", k, k)
        taken = torch.linalg.solve_triangular(
            held.tril(-1)[:, :, None],
            matches * decay[:, :, None],
            upper=False,
            left=False,
            unitriangular=True,
        )
        return taken * write[:, :, None, None]

    @staticmethod
    def step(state: State, k: Tensor, v: Tensor, gates: Gates) -> State:
        """Return S after one more token."""
        log_decay, write = (gate[:, :, None] for gate in gates)
        state = log_decay[..., None].exp() * state
        new = write * (v - torch.einsum("bgd,bgde->bge", k, state))
        return state + outer(k, new)
