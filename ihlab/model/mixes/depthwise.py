"""Depthwise causal convolutions: each channel is mixed with its own previous values, with its own
taps.

A Canon layer (Allen-Zhu 2025, Physics of Language Models 4.1) is such a convolution with a kernel
of 4, without bias and activation, added to its input:

    y[t] = x[t] + w[0] (.) x[t] + w[1] (.) x[t - 1] + w[2] (.) x[t - 2] + w[3] (.) x[t - 3],

with zeros before the first token, at any of four places: A, the input of attention's projections;
B, queries, keys and values before the rotation; C, the MLP's normalised input; D, the input of its
activation (for SwiGLU, of both branches). With taps w[0], w[1], 0, 0 on all channels of keys and
values, and 0 on queries, B is equation 5 of arXiv 2411.19574 with alpha1 = beta1 = 1 + w[0] and
alpha2 = beta2 = w[1].

The short convolutions of Inkling and of Marin's issue 7585 are the same sum at other places: K,
keys after their projection; V, values; O, what attention adds to the residual stream; M, what the
MLP adds. They start as Canon's do.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past, earlier
from ihlab.model.shift import TokenMix, spawned, token_shift

TAPS = 4
"""Number of tokens that a Canon layer mixes: the current token and those right before it."""

_DRAWS = "ABCD  KVOM"
"""A place's index + 1 is the key of its generator. Registered attention has the key 5.
"""


class Depthwise(TokenMix):
    """A causal convolution of each channel with learned taps [group, window, width]; with
    `residual`, plus its input.

    Groups are heads, the branches of an MLP, or the residual stream as one group. Column r of the
    taps is for the token r positions back. A cache stores the input under the name `place`.
    """

    def __init__(
        self, taps: Float[Tensor, "group window width"], place: str, residual: bool = True
    ) -> None:
        super().__init__()
        self.weight, self.place, self.residual = nn.Parameter(taps), place, residual

    def forward(
        self, x: Float[Tensor, "batch pos *group width"], cache: Past | None
    ) -> Float[Tensor, "batch pos *group width"]:
        """Convolve x along its tokens. With a cache, x continues its sequences."""
        groups = x.unflatten(2, (len(self.weight), -1)) if x.ndim == 3 else x
        mixed = token_shift(
            groups, self.weight, earlier(cache, self.place, groups, self.weight.shape[1] - 1)
        )
        if self.residual:
            mixed = groups + mixed
        return mixed.reshape(x.shape)


def make_canon(
    cfg: ModelConfig,
    place: str,
    groups: dict[str, int],
    width: int,
    generator: torch.Generator | None,
    layer: int,
) -> dict[str, Depthwise]:
    """Return the Canon layers of a place, keyed like `groups` (the group counts); empty if
    `cfg.canon` lacks the place.

    They start as `torch.nn.Conv1d` does, from U(-b, b) with b = 1 / sqrt(taps), 1/2 for four; with
    shift_start "identity", as 0. They have their own generator, so all other parameters start as
    without them.
    """
    if place not in cfg.canon:
        return {}
    source = spawned(generator, layer, 1 + _DRAWS.index(place))
    bound = 0.0 if cfg.shift_start == "identity" else TAPS**-0.5
    made = {}
    for name, n_groups in groups.items():
        drawn = torch.rand(n_groups, TAPS, width, generator=source)
        made[name] = Depthwise(bound * (2 * drawn - 1), name)
    return made


def make_head_convolutions(
    cfg: ModelConfig, generator: torch.Generator | None, layer: int
) -> nn.ModuleDict:
    """Return the Canon layers of a layer's "query", "key" and "value" after their projection: the
    places B, K and V.
    """
    heads = {"query": cfg.n_heads, "key": cfg.kv_heads, "value": cfg.kv_heads}
    convolutions: dict[str, Depthwise] = {}
    for place, sides in (("B", ("query", "key", "value")), ("K", ("key",)), ("V", ("value",))):
        groups = {side: heads[side] for side in sides}
        convolutions |= make_canon(cfg, place, groups, cfg.head_width, generator, layer)
    return nn.ModuleDict(convolutions)
