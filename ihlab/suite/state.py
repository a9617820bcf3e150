"""Patch a recurrent head's state at one position, where it is all that the head keeps of earlier
tokens.
"""

import pandas as pd
import torch
from torch import Tensor

from ihlab.attribution import Problem
from ihlab.model.decode import Decoder
from ihlab.runtime.settings import own_settings
from tasks.config import require

POSITIONS = ("earlier", "after", "before")
"""After which token the state is patched: the earlier occurrence, the token after it, the one
before the scored one.
"""

States = list[dict[int, Tensor]]
"""After each token, the state [batch, kv_head, d_head, d_value] of each recurrent layer."""


@own_settings()
@torch.no_grad()
def state_effects(problem: Problem) -> pd.DataFrame:
    """Patch the state S of every recurrent head (`ihlab.model.variants.recurrence`) from clean into
    corrupted prompts.

    The table has one row per head and position: `layer`, `head` (a key/value head), `position`
    (`POSITIONS`), `effect` (the rise of the metric on corrupted prompts when the state after that
    token is replaced by the clean one) and `fraction` (of the swing). Tokens are read one by one,
    so later states follow from the patched one. Layers of attention have no row. Raises
    `ConfigError` for a model without a state, and for prompts that are not a task's.
    """
    pair = getattr(problem.metric, "pair", None)
    require(
        pair is not None,
        "The prompts are not a task's, so no position has a name at which the state could be patched.",
    )
    assert pair is not None
    _, clean = _read(problem, problem.clean)
    cfg = problem.transformer.cfg
    require(
        bool(clean[0]),
        f"attention is {cfg.attention!r}, which has no state: only recurrences have one.",
    )
    before, _ = _read(problem, problem.corrupted)
    ends = dict(zip(POSITIONS, (pair.earlier, pair.earlier + 1, pair.position - 1), strict=True))
    rows = []
    for layer in clean[0]:
        for head in range(cfg.kv_heads):
            for name, end in ends.items():
                after, _ = _read(problem, problem.corrupted, (layer, head, end, clean))
                rows.append(
                    {"layer": layer, "head": head, "position": name, "effect": after - before}
                )
    table = pd.DataFrame(rows)
    return table.assign(fraction=table["effect"] / problem.swing)


def _read(
    problem: Problem, tokens: Tensor, patch: tuple[int, int, Tensor, States] | None = None
) -> tuple[float, States]:
    """Read tokens one by one; return the mean metric, and the states.

    `patch` is a layer, a head, the position of each prompt after which its state is replaced, and
    the states to take.
    """
    decoder, logits, states = Decoder(problem.transformer, *tokens.shape), [], []
    for position in range(tokens.shape[1]):
        logits.append(decoder.forward(tokens[:, position : position + 1]))
        caches = enumerate(decoder.caches)
        states.append(
            {layer: cache.raw["state"] for layer, cache in caches if "state" in cache.raw}
        )
        if patch is not None:
            layer, head, end, source = patch
            here = end == position
            states[position][layer][here, head] = source[position][layer][here, head]
    return problem.metric(torch.cat(logits, dim=1)).double().mean().item(), states
