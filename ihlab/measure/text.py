"""Measures of a language model on text: bits per byte, and losses where induction could help."""

import math

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from torch.nn import functional as F

from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from tasks import IGNORE, TextTask
from tasks.config import require, require_integer

REST, ELIGIBLE, MISLED = 0, 1, 2
CLASSES = {ELIGIBLE: "eligible", MISLED: "misled", REST: "rest"}
"""Classes of positions by whether copying the text after an earlier occurrence of the context gives
the target.
"""

CHUNK_LOGITS = 2**24
"""Maximum number of logits in memory at once."""


@in_eval_mode
@torch.no_grad()
def token_losses(
    model: Transformer, inputs: Int[np.ndarray, "rows pos"], targets: Int[np.ndarray, "rows pos"]
) -> Float[np.ndarray, "rows pos"]:
    """Return the cross-entropy of each target, in nats. Raises `ConfigError` for positions without
    a target.
    """
    _require_all_targets(targets)
    device = model.embed.weight.device
    rows = max(1, CHUNK_LOGITS // (inputs.shape[1] * model.cfg.d_vocab))
    losses = []
    for start in range(0, len(inputs), rows):
        logits = model(torch.from_numpy(inputs[start : start + rows]).to(device)).float()
        aim = torch.from_numpy(targets[start : start + rows]).to(device)
        losses.append(F.cross_entropy(logits.transpose(1, 2), aim, reduction="none").double().cpu())
    return torch.cat(losses).numpy()


def bits_per_byte(losses: Float[np.ndarray, "*shape"], n_bytes: Int[np.ndarray, "*shape"]) -> float:
    """Return the mean bits per byte: sum of losses / (log 2 x bytes of their targets)."""
    return float(losses.sum() / (math.log(2) * n_bytes.sum()))


def _require_all_targets(targets: Int[np.ndarray, "rows pos"]) -> None:
    n_without = int((targets == IGNORE).sum())
    require(
        n_without == 0,
        f"{n_without} of {targets.size} positions have no target ({IGNORE}), as in packed documents: take sequences "
        "of a task with pack=False.",
    )


def position_classes(
    task: TextTask,
    inputs: Int[np.ndarray, "rows pos"],
    targets: Int[np.ndarray, "rows pos"],
    context: int = 4,
) -> Int8[np.ndarray, "rows pos"]:
    """Return the class of each position: does its context, the last `context` bytes, occur earlier
    in the sequence?

    - `ELIGIBLE`: the context occurs earlier, at least once followed by the bytes of the target;
    - `MISLED`: the context occurs earlier, but is never followed by the target;
    - `REST`: the context does not occur earlier.

    Contexts are counted in bytes, so that models with different tokenizers are compared at the same
    places. Raises `ConfigError` for positions without a target, and for a context below 1.
    """
    _require_all_targets(targets)
    require_integer("context", context, 1)
    vocabulary = task.prepared.vocabulary
    classes = np.zeros(inputs.shape, dtype=np.int8)
    for row, (tokens, following) in enumerate(zip(inputs.tolist(), targets.tolist(), strict=True)):
        text = b""
        for place, (token, target) in enumerate(zip(tokens, following, strict=True)):
            text += vocabulary[token]
            copied, start = [], text.find(text[-context:])
            while start + context < len(text):  # the last occurrence is the context itself
                copied.append(text.startswith(vocabulary[target], start + context))
                start = text.find(text[-context:], start + 1)
            if copied:
                classes[row, place] = ELIGIBLE if any(copied) else MISLED
    return classes
