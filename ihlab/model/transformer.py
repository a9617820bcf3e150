"""The model of this package: the network, decoding, and TransformerLens' interface
(`ihlab.model.lens`).

`run_with_cache` and `ActivationCache` work as with TransformerLens' own models.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from ihlab.model import decode, query_positions
from ihlab.model.lens.calls import LensCalls
from ihlab.model.network import Network


class Transformer(LensCalls, Network):
    """A model that maps tokens to next-token logits. `Transformer(cfg, seed)` is a pure function of
    its arguments.
    """

    special_tokens: Mapping[str, int] = MappingProxyType({})
    """For a converted model, the ids of special tokens by their name in the Hugging Face config
    (bos_token_id).
    """

    residual_at = query_positions.residual_at  # a method: its first argument is the model

    def generate(
        self,
        tokens: Any,
        max_new_tokens: int,
        stop: int | None = None,
        pad: int | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Int64[Tensor, "batch longer"]:
        """Continue the tokens by up to `max_new_tokens`: greedily, or sampled at a temperature
        above 0.

        See `ihlab.model.decode.generate`. TransformerLens' own `generate` samples at temperature 1
        by default.
        """
        return decode.generate(
            self, self.to_tokens(tokens), max_new_tokens, stop, pad, temperature, generator
        )
