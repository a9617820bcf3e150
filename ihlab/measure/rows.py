"""Rows with their scored positions, as a training step and an evaluation take them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from tasks import IGNORE, Batch

RowsT = TypeVar("RowsT", bound=Any)  # a dataclass


@dataclass(frozen=True)
class Scored:
    """Rows for a training step: tokens, and the positions to unembed.

    - `tokens`  int64 [batch, pos];
    - `index`   int64 [scored]: positions in the flattened [batch * pos];
    - `targets` int64 [scored]: the token that the loss scores at each. Index and targets are padded with
      (0, IGNORE) to a multiple of a sixteenth of all positions, so that a compiled step meets few shapes.
      Where that makes them as long as all positions, they are all positions, in order;
    - `queries` int64 [batch, query], or None: the `query_positions` of the targets;
    - `count`: the number of targets that are not padding;
    - `total`: their number in the whole step, in all its microbatches on all ranks: the loss is divided by it.
    """

    tokens: Int64[Tensor, "batch pos"]
    index: Int64[Tensor, " scored"]
    targets: Int64[Tensor, " scored"]
    queries: Int64[Tensor, "batch query"] | None
    count: int
    total: int

    def to(self, device: torch.device) -> "Scored":
        """A copy on a device, without waiting for it."""
        return each_tensor(self, lambda x: x.to(device, non_blocking=True))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The arguments of `summed_loss`."""
        return self.tokens, self.index, self.targets, self.queries


def scored(
    tokens: Int64[np.ndarray, "batch pos"], targets: Int64[np.ndarray, "batch pos"], pin: bool = False
) -> Scored:
    """Keep the positions with a target. With `pin`, in page-locked memory for an asynchronous copy."""
    flat = np.ascontiguousarray(targets).reshape(-1)
    index = np.flatnonzero(flat != IGNORE)
    bucket = max(1, flat.size // 16)
    padding = -len(index) % bucket
    count = len(index)
    padded_index, padded_targets = np.zeros(count + padding, np.int64), np.full(count + padding, IGNORE)
    padded_index[:count], padded_targets[:count] = index, flat[index]
    if len(padded_index) >= flat.size:
        padded_index, padded_targets = np.arange(flat.size), flat
    rows = Scored(
        torch.from_numpy(np.ascontiguousarray(tokens)),
        torch.from_numpy(padded_index),
        torch.from_numpy(padded_targets),
        query_positions(targets != IGNORE),
        count,
        total=count,
    )
    return each_tensor(rows, Tensor.pin_memory) if pin else rows


@dataclass(frozen=True)
class Graded:
    """One evaluation batch: tokens, and every position that has a target or an answer.

    `first` marks the first answer of each row; `queries` are the `query_positions` of all that are graded.
    The counts are Python integers: reading them does not synchronise a device.
    """

    tokens: Int64[Tensor, "batch pos"]
    index: Int64[Tensor, " graded"]
    targets: Int64[Tensor, " graded"]
    answers: Int64[Tensor, " graded"]
    first: Bool[Tensor, " graded"]
    queries: Int64[Tensor, "batch query"] | None
    n_targets: int
    n_answers: int
    n_first: int


def graded(batch: Batch, device: torch.device | None = None) -> Graded:
    """Prepare a batch for evaluation."""
    has_target, has_answer = batch.targets != IGNORE, batch.answers != IGNORE
    first = has_answer & (has_answer.cumsum(axis=1) == 1)
    graded = has_target | has_answer
    index = np.flatnonzero(graded)
    targets, answers, is_first = (torch.from_numpy(x.reshape(-1)[index]) for x in (batch.targets, batch.answers, first))
    rows = Graded(
        torch.from_numpy(np.ascontiguousarray(batch.inputs)),
        torch.from_numpy(index),
        targets,
        answers,
        is_first,
        query_positions(graded),
        n_targets=int(has_target.sum()),
        n_answers=int(has_answer.sum()),
        n_first=int(first.sum()),
    )
    return each_tensor(rows, lambda x: x.to(device))


LARGEST_MASK = 2**26
"""Most scores, batch * query * key, of queries at some positions. Their mask has as many floats (256 MiB)."""


def query_positions(kept: Bool[np.ndarray, "batch pos"]) -> Int64[Tensor, "batch query"] | None:
    """Return positions of each row that include the kept ones, as many in each: for the last layer's queries.

    Their number is the fullest row's, rounded up to a multiple of a sixteenth of the row. None if that is more than
    half of it: causal attention with queries at all positions then costs no more. None also if their mask would have
    more than `LARGEST_MASK` scores: queries at all positions need none. (The padding of `Scored.index` need not be
    among them: its targets are ignored.)
    """
    length = kept.shape[1]
    bucket = max(1, length // 16)
    n_queries = max(1, -(-int(kept.sum(axis=1).max()) // bucket)) * bucket
    if 2 * n_queries > length or kept.size * n_queries > LARGEST_MASK:
        return None
    first_kept = np.argsort(~kept, axis=1, kind="stable")[:, :n_queries]  # then the first that are not kept
    return torch.from_numpy(np.ascontiguousarray(first_kept))


def each_tensor(rows: RowsT, change: Callable[[Tensor], Tensor]) -> RowsT:
    """Return the same rows with each tensor changed."""
    return replace(rows, **{name: change(x) for name, x in vars(rows).items() if isinstance(x, Tensor)})
