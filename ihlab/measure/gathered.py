"""Batches for training steps and evaluations, with their scored positions gathered."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tasks import IGNORE, Batch

BatchT = TypeVar("BatchT", bound=Any)  # a dataclass


@dataclass(frozen=True)
class TrainingBatch:
    """A microbatch of a training step: its tokens, and the positions that the loss scores.

    - `tokens`: every position of every sequence;
    - `index`: the scored positions in the flattened [batch * pos]; None: every position is scored;
    - `targets`: the token that the loss scores at each of them. Index and targets are padded with
      (0, IGNORE) to a multiple of a sixteenth of all positions, so that a compiled step meets few
      shapes;
    - `queries`: the `query_positions` of the targets; None: all positions;
    - `count`: the number of targets that are not padding;
    - `total`: the number of targets in the whole step, in all its microbatches. The loss is divided
      by it;
    - `starts`: the first token of each packed document; None: sequences are whole.

    In a stacked batch (`ihlab.training.ensemble`) every tensor and the total have a leading member
    dimension.
    """

    tokens: Int64[Tensor, "*member batch pos"]
    index: Int64[Tensor, "*member scored"] | None
    targets: Int64[Tensor, "*member scored"]
    queries: Int64[Tensor, "*member batch query"] | None
    count: int
    total: int | Float[Tensor, " member"]
    starts: Bool[Tensor, "batch pos"] | None = None

    def to(self, device: torch.device) -> "TrainingBatch":
        """Return a copy on a device, without waiting for the transfer."""
        return each_tensor(self, lambda x: x.to(device, non_blocking=True))

    @property
    def tensors(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None]:
        """The arguments of `ihlab.measure.loss.summed_loss` after the model."""
        return self.tokens, self.index, self.targets, self.queries, self.starts


def training_batch(
    tokens: Int64[np.ndarray, "batch pos"], targets: Int64[np.ndarray, "batch pos"]
) -> TrainingBatch:
    """Gather the positions that have a target."""
    flat = np.ascontiguousarray(targets).reshape(-1)
    index = np.flatnonzero(flat != IGNORE)
    count, bucket = len(index), max(1, flat.size // 16)
    padded = count + -count % bucket
    gathered, scored = None, torch.from_numpy(flat)
    if padded < flat.size:
        padding = (0, padded - count)
        gathered = torch.from_numpy(np.pad(index, padding))
        scored = torch.from_numpy(np.pad(flat[index], padding, constant_values=IGNORE))
    return TrainingBatch(
        tokens=torch.from_numpy(np.ascontiguousarray(tokens)),
        index=gathered,
        targets=scored,
        queries=query_positions(targets != IGNORE),
        count=count,
        total=count,
    )


@dataclass(frozen=True)
class EvaluationBatch:
    """A batch of an evaluation: its tokens, and every position that has a target or an answer.

    `first` marks the first answer of each sequence; `queries` are the `query_positions` of all
    gathered positions. `counts` are those of targets, answers and first answers: Python integers,
    so that reading them does not synchronise a device.
    """

    tokens: Int64[Tensor, "batch pos"]
    index: Int64[Tensor, " gathered"]
    targets: Int64[Tensor, " gathered"]
    answers: Int64[Tensor, " gathered"]
    first: Bool[Tensor, " gathered"]
    queries: Int64[Tensor, "batch query"] | None
    counts: tuple[int, int, int]
    starts: Bool[Tensor, "batch pos"] | None = None


def evaluation_batch(batch: Batch, device: torch.device | None = None) -> EvaluationBatch:
    """Gather the positions that have a target or an answer."""
    has_target, has_answer = batch.targets != IGNORE, batch.answers != IGNORE
    first = has_answer & (has_answer.cumsum(axis=1) == 1)
    wanted = has_target | has_answer
    index = np.flatnonzero(wanted)
    targets, answers, is_first = (
        torch.from_numpy(x.reshape(-1)[index]) for x in (batch.targets, batch.answers, first)
    )
    gathered = EvaluationBatch(
        tokens=torch.from_numpy(np.ascontiguousarray(batch.inputs)),
        index=torch.from_numpy(index),
        targets=targets,
        answers=answers,
        first=is_first,
        queries=query_positions(wanted),
        counts=(int(has_target.sum()), int(has_answer.sum()), int(first.sum())),
        starts=document_starts(batch),
    )
    return each_tensor(gathered, lambda x: x.to(device))


def document_starts(batch: Batch) -> Bool[Tensor, "batch pos"] | None:
    """Return a batch's `document_starts` as a tensor."""
    return None if batch.document_starts is None else torch.from_numpy(batch.document_starts)


LARGEST_MASK = 2**26
"""Maximum number of scores, batch * query * key, for gathered queries. Their mask has as many
floats (256 MiB).
"""


def query_positions(needed: Bool[np.ndarray, "batch pos"]) -> Int64[Tensor, "batch query"] | None:
    """Return the query positions that the last layer needs in each sequence. They include all
    `needed` positions.

    Their number is the largest number of needed positions in a sequence, rounded up to a multiple
    of a sixteenth of the length. Return None if that is more than half of the length, where causal
    attention at all positions costs no more, and if the mask would have more than `LARGEST_MASK`
    scores, because queries at all positions need no mask. The padding of `TrainingBatch.index` may
    be missing from them, because its targets are ignored.
    """
    length = needed.shape[1]
    bucket = max(1, length // 16)
    n_queries = max(1, -(-int(needed.sum(axis=1).max()) // bucket)) * bucket
    if 2 * n_queries > length or needed.size * n_queries > LARGEST_MASK:
        return None
    needed_first = np.argsort(~needed, axis=1, kind="stable")[:, :n_queries]
    return torch.from_numpy(np.ascontiguousarray(needed_first))


def each_tensor(batch: BatchT, change: Callable[[Tensor], Tensor]) -> BatchT:
    """Return the same batch with each tensor changed."""
    return replace(
        batch, **{name: change(x) for name, x in vars(batch).items() if isinstance(x, Tensor)}
    )
