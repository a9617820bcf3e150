"""Measure where each head attends to from the scored position: mean attention to named positions, and a sentence."""

import pandas as pd
import torch

from ihlab.interp.prompt_pair import PromptPair
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode

POSITIONS = {
    "itself": "itself",
    "previous": "the previous token",
    "earlier": "the earlier occurrence of its token",
    "after": "the token after the earlier occurrence",
    "first": "the first token",
}
"""The named positions, in words."""


@in_eval_mode
@torch.no_grad()
def attention_to_positions(model: Transformer, pair: PromptPair) -> pd.DataFrame:
    """Return each head's attention from the scored position of the clean prompts, mean over prompts.

    Columns: `layer`, `head`, one for each of `POSITIONS` (two can name the same position), and `sentence`.
    """
    query, rows = pair.position, torch.arange(len(pair.clean))
    last = pair.clean.shape[1] - 1
    positions = [query, (query - 1).clamp_min(0), pair.earlier, (pair.earlier + 1).clamp_max(last), 0 * query]
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    _, cache = model.run_with_cache(pair.clean, names_filter=names)
    table = []
    for layer, name in enumerate(names):
        of_query = cache[name][rows, :, query]  # [prompt, head, key]
        mean = torch.stack([of_query[rows, :, position].mean(dim=0) for position in positions], dim=1)
        for head, weights in enumerate(mean.tolist()):
            named = dict(zip(POSITIONS, weights, strict=True))
            table.append({"layer": layer, "head": head, **named, "sentence": _sentence(layer, head, named)})
    return pd.DataFrame(table)


def _sentence(layer: int, head: int, weights: dict[str, float]) -> str:
    most = max(weights, key=lambda name: weights[name])
    much = f"{weights[most]:.2f} of its attention"
    if weights[most] >= 0.5:
        return f"Head {layer}.{head} attends to {POSITIONS[most]} ({much})."
    return f"Head {layer}.{head} attends mostly elsewhere: of the named positions, {POSITIONS[most]} has most ({much})."
