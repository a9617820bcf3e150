"""A score of every head of a model, from its attention patterns."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from ihlab.model.transformer import Transformer


def scored_patterns(
    model: Transformer, tokens: Int[Tensor, "batch pos"], score: Callable[[Tensor], Tensor]
) -> Float[Tensor, " heads"]:
    """Return a score of every head, layer by layer; `score` takes a layer's pattern [batch, head, query, key].

    Each pattern is scored in its hook; none is kept, and nothing after the last is computed. NaN for the heads of a
    layer whose custom attention has no hook_pattern or does not call it.
    """
    scores: dict[int, Tensor] = {}

    def note(layer: int, pattern: Tensor, hook: HookPoint) -> None:
        scores[layer] = score(pattern)

    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    model.name_new_hook_points()
    names = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in range(n_layers)}
    hooks = [(name, partial(note, layer)) for layer, name in names.items() if name in model.hook_dict]
    last = model.layers[-1]
    with model.hooks(fwd_hooks=hooks):
        last.attn(last.attention_input(last.entering(model.before_last_layer(tokens))))
    unknown = torch.full((n_heads,), torch.nan, device=tokens.device)
    return torch.cat([scores.get(layer, unknown) for layer in range(n_layers)])
