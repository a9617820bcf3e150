"""Smear (modded-nanogpt and nanochat): the token before is added to each token, as much as a gate of the token says.

    y[t] = x[t] + lambda sigmoid(w . x[t]) x[t - 1],

zeros before the first token, with lambda one learned number, and w of the first 12 channels of x. Both start as 0, so
that the model starts as one without. There, x is the embedding; here it can also be what attention reads.
Keys and values then hold the same mix: no weights make a key of the token before alone and a value of its own token.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.kv_cache import KVCache, earlier
from ihlab.model.shapes import Stream
from ihlab.model.shift import TokenMix

GATE_CHANNELS = 12


class Smear(TokenMix):
    """y as above. hook_gate [batch, pos, 1] is lambda sigmoid(w . x[t])."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, min(GATE_CHANNELS, d_model)))
        self.scale = nn.Parameter(torch.zeros(1))
        self.hook_gate = HookPoint()

    def forward(self, x: Stream, cache: KVCache | None = None) -> Stream:
        """Add the tokens before. With a cache, x continues its sequences."""
        gate = self.hook_gate(self.scale * F.linear(x[..., : self.weight.shape[1]], self.weight).sigmoid())
        before = earlier(cache, "smear", x, 1)
        first = torch.zeros_like(x[:, :1]) if before is None else before
        return x + gate * torch.cat([first, x[:, :-1]], dim=1)
