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
    before, after = (query - 1).clamp_min(0), (pair.earlier + 1).clamp_max(last)
    keys = torch.stack([query, before, pair.earlier, after, 0 * query])
    _, cache = model.run_with_cache(pair.clean)
    table = []
    for layer in range(model.cfg.n_layers):
        mean = cache["pattern", layer][rows, :, query, keys].mean(dim=1)  # [position, head]
        for head, weights in enumerate(mean.T.tolist()):
            table.append((layer, head, *weights))
    return pd.DataFrame(table, columns=["layer", "head", *POSITIONS])
