"""Prompts and their corruptions for activation patching, made from any task."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tasks import IGNORE
from tasks.config import require, shown


@dataclass(frozen=True)
class PromptPair:
    """Prompts, and the same prompts with two ids swapped.

    - `clean`, `corrupted`: tokens [batch, pos];
    - `position`: the position in each sequence [batch] whose next token is scored;
    - `answer`, `other`: the correct next tokens there [batch], on the clean and the corrupted prompt.
    """

    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    position: Int[Tensor, " batch"]
    answer: Int[Tensor, " batch"]
    other: Int[Tensor, " batch"]

    def logit_difference(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, ""]:
        """Return the mean over sequences of logit(answer) - logit(other): the metric of `transformer_lens.patching`."""
        at = torch.arange(len(logits), device=logits.device)
        scored = logits[at, self.position.to(logits.device)]
        return (scored[at, self.answer.to(logits.device)] - scored[at, self.other.to(logits.device)]).mean()


def prompt_pair(task: Any, size: int = 32, seed: int = 0) -> PromptPair:
    """Return `size` prompts of a task, each with a corruption whose correct answer is different.

    A prompt ends at the last answer of its sequence whose answer token occurs earlier. Later tokens are kept but
    not scored. The corruption swaps the answer with another content id of the prompt at every position before the
    scored one. If the task does not depend on which ids it uses, as in induction, the other id becomes the correct
    answer. Raises `ConfigError` for a sequence without such an answer, or without another id.
    """
    require(size >= 1, f"size is {size}, but must be at least 1.")
    rng = np.random.default_rng(seed)
    batch = task.batch(size, rng)
    special = set(getattr(task, "special_ids", ())) | set(getattr(task, "begins_with", ()))
    corrupted, chosen = batch.inputs.copy(), []
    for row, (tokens, answers) in enumerate(zip(batch.inputs, batch.answers, strict=True)):
        copied = [at for at in np.flatnonzero(answers != IGNORE) if answers[at] in tokens[:at]]
        require(bool(copied), f"Sequence {row} of task {shown(task.kind)} has no answer that occurs before it.")
        position = copied[-1]
        answer = answers[position]
        others = sorted(set(tokens[:position].tolist()) - special - {answer, tokens[position]})
        require(bool(others), f"Sequence {row} of task {shown(task.kind)} has no other id to swap the answer with.")
        other = rng.choice(others)
        before = tokens[:position]
        corrupted[row, :position] = np.where(before == answer, other, np.where(before == other, answer, before))
        chosen.append((int(position), int(answer), int(other)))
    scored = torch.tensor(chosen)  # [batch, 3]
    return PromptPair(torch.from_numpy(batch.inputs), torch.from_numpy(corrupted), *scored.unbind(dim=1))
