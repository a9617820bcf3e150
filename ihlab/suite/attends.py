"""Measure where each head attends to from the scored position: mean attention to named positions."""

import pandas as pd
import torch

from ihlab.interp.prompt_pair import PromptPair
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode

POSITIONS = ("itself", "previous", "earlier", "after", "first")
"""The named positions: the scored one, the one before it, the earlier occurrence of its token, the
one after that, and the first of the sequence."""


@in_eval_mode
@torch.no_grad()
def attention_to_positions(model: Transformer, pair: PromptPair) -> pd.DataFrame:
    """Return each head's attention from the scored position of the clean prompts, mean over
    prompts.

    Columns: `layer`, `head`, and one for each of `POSITIONS` (two can name the same position).
    """
    query, rows = pair.position, torch.arange(len(pair.clean))
    last = pair.clean.shape[1] - 1
    positions = [
        query,
        (query - 1).clamp_min(0),
        pair.earlier,
        (pair.earlier + 1).clamp_max(last),
        0 * query,
    ]
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    _, cache = model.run_with_cache(pair.clean, names_filter=names)
    table = []
    for layer, name in enumerate(names):
        of_query = cache[name][rows, :, query]  # [prompt, head, key]
        mean = torch.stack(
            [of_query[rows, :, position].mean(dim=0) for position in positions], dim=1
        )
        for head, weights in enumerate(mean.tolist()):
            table.append(
                {"layer": layer, "head": head, **dict(zip(POSITIONS, weights, strict=True))}
            )
    return pd.DataFrame(table)
