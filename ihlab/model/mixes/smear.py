"""Smear (modded-nanogpt and nanochat): add the previous token to each embedding, with a gate
computed from the token.

    y[t] = x[t] + lambda sigmoid(w . x[t]) x[t - 1],

with zeros before the first token. lambda is one learned number, and w reads the first 12 channels
of x. Both start as 0, so the model starts as one without smear. Keys and values then contain the
same mix: no key has only the previous token while its value has only the token itself.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Stream
from ihlab.model.earlier_tokens import previous
from ihlab.model.kv_cache import Past, earlier
from ihlab.model.shift import TokenMix

GATE_CHANNELS = 12


class Smear(TokenMix):
    """Add lambda sigmoid(w . x[t]) x[t - 1] to each x[t]. hook_gate [batch, pos, 1] is the factor
    of x[t - 1].
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, min(GATE_CHANNELS, d_model)))
        self.scale = nn.Parameter(torch.zeros(1))
        self.hook_gate = HookPoint()

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Add the gated previous token to each token. With a cache, x continues its sequences."""
        gate = F.linear(x[..., : self.weight.shape[1]], self.weight).sigmoid()
        return x + self.hook_gate(self.scale * gate) * previous(x, earlier(cache, "smear", x, 1))
