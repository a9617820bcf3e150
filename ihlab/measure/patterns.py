"""A score of every head of a model, from its attention patterns."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from ihlab.model.transformer import Transformer


def scored_patterns(
    model: Transformer, tokens: Int[Tensor, "batch pos"], score: Callable[[Tensor], Tensor]
) -> Float[Tensor, " heads"]:
    """Return a score of every head, layer by layer; `score` takes a layer's pattern [batch, head, query, key].

    Each pattern is scored in its hook; none is kept.
    """
    scores: list[Tensor] = []

    def note(pattern: Tensor, hook: HookPoint) -> None:
        scores.append(score(pattern))

    with model.hooks(fwd_hooks=[(lambda name: name.endswith("hook_pattern"), note)]):
        model.final_residual(tokens)
    return torch.cat(scores)
