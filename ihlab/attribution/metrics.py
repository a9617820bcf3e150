"""Named metrics: each gives one number per prompt, from the logits at the prompt's scored position."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.prompt_pair import PromptPair

Scored = Float[Tensor, "batch d_vocab"]
Ids = Int[Tensor, " batch"]


def _of(x: Scored, ids: Ids) -> Float[Tensor, " batch"]:
    return x[torch.arange(len(x), device=x.device), ids]


METRICS: dict[str, Callable[[Scored, Ids, Ids, Scored], Float[Tensor, " batch"]]] = {
    "logit-difference": lambda logits, answer, other, clean: (
        _of(logits, answer) - _of(logits, other)
    ),
    "logit": lambda logits, answer, other, clean: _of(logits, answer),
    "log-probability": lambda logits, answer, other, clean: _of(logits.log_softmax(dim=-1), answer),
    "probability": lambda logits, answer, other, clean: _of(logits.softmax(dim=-1), answer),
    "kl": lambda logits, answer, other, clean: (
        clean.softmax(dim=-1) * (clean.log_softmax(dim=-1) - logits.log_softmax(dim=-1))
    ).sum(dim=-1),
}
"""Each maps the logits at the scored position, the answer, the other answer, and the model's own
logits there on the clean prompt to a number. "kl" is KL(clean output || output) in nats: 0 on clean
prompts."""


@dataclass(frozen=True)
class NamedMetric:
    """A metric of `METRICS` on the prompts of a pair. `clean`: the logits that "kl" compares with."""

    name: str
    pair: PromptPair
    clean: Float[Tensor, "batch d_vocab"]

    def __call__(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, " batch"]:
        """Return the metric of each prompt."""
        pair = self.pair
        answer, other = (ids.to(logits.device) for ids in (pair.answer, pair.other))
        return METRICS[self.name](scored(logits, pair), answer, other, self.clean)

    def shuffled(self, other: Ids) -> "NamedMetric":
        """Return the metric that scores each prompt by the two answers of another prompt."""
        order = other.to(self.pair.answer.device)
        answers = {"answer": self.pair.answer[order], "other": self.pair.other[order]}
        return replace(self, pair=replace(self.pair, **answers), clean=self.clean[other])


def scored(logits: Float[Tensor, "batch pos d_vocab"], pair: PromptPair) -> Scored:
    """Return the logits at the scored position of each prompt."""
    return logits[torch.arange(len(logits), device=logits.device), pair.position.to(logits.device)]
