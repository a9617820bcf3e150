"""Training and evaluation batches: pure functions of (task, seed, split, step), drawn ahead on a thread."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from tasks import IGNORE, Batch, Task
from tasks.config import require

T = TypeVar("T")

SPLITS = ("train", "eval", "probe")
Split = Literal["train", "eval", "probe"]


def draw(task: Task, seed: int, split: Split, step: int, size: int) -> Batch:
    """The batch of one step. Counter-seeded: no step depends on having drawn another."""
    return task.batch(size, np.random.default_rng([SPLITS.index(split), seed, step]))


@dataclass(frozen=True)
class Scored:
    """Rows as a training step wants them: tokens, and the positions to unembed.

    - `tokens`  int64 [batch, pos];
    - `index`   int64 [scored]: positions in the flattened [batch * pos];
    - `targets` int64 [scored]: what the loss asks for there. Index and targets are padded with
      (0, IGNORE) to a multiple of a sixteenth of all positions, so that a compiled step meets few shapes.
      Where that makes them as long as all positions, they are all positions, in order;
    - `count`: how many targets are not padding;
    - `total`: how many the whole step has, in all its pieces on all machines: the loss is divided by it.
    """

    tokens: Int64[Tensor, "batch pos"]
    index: Int64[Tensor, " scored"]
    targets: Int64[Tensor, " scored"]
    count: int
    total: int

    def to(self, device: torch.device) -> "Scored":
        """A copy on a device, without waiting for it."""
        tokens, index, targets = (x.to(device, non_blocking=True) for x in (self.tokens, self.index, self.targets))
        return Scored(tokens, index, targets, self.count, self.total)


def scored(
    tokens: Int64[np.ndarray, "batch pos"], targets: Int64[np.ndarray, "batch pos"], pin: bool = False
) -> Scored:
    """Keep the positions with a target. With `pin`, in page-locked memory for an asynchronous copy."""
    flat = np.ascontiguousarray(targets).reshape(-1)
    index = np.flatnonzero(flat != IGNORE)
    bucket = max(1, flat.size // 16)
    padding = -len(index) % bucket
    count = len(index)
    padded_index = np.concatenate([index, np.zeros(padding, np.int64)])
    padded_targets = np.concatenate([flat[index], np.full(padding, IGNORE)])
    if len(padded_index) >= flat.size:
        padded_index, padded_targets = np.arange(flat.size), flat
    arrays = (np.ascontiguousarray(tokens), padded_index, padded_targets)
    tensors = [torch.from_numpy(a).pin_memory() if pin else torch.from_numpy(a) for a in arrays]
    return Scored(tensors[0], tensors[1], tensors[2], count, total=count)


class Stream:
    """The training batches of a run from step `start` on, each in `pieces` for gradient accumulation.

    Of `ranks` processes that train together each takes its share of every piece: together they have the rows that
    one would have alone. Raises `ConfigError` where pieces cannot be shared out evenly.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        batch_size: int,
        pieces: int = 1,
        pin: bool = False,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        require(
            batch_size % (pieces * ranks) == 0,
            f"RunConfig.batch_size is {batch_size}, which {pieces} piece(s) (accumulate) for each of {ranks} processes "
            f"do not divide: it must be a multiple of {pieces * ranks}.",
        )
        self.task, self.seed, self.batch_size, self.pin = task, seed, batch_size, pin
        self.pieces, self.rank, self.ranks = pieces, rank, ranks

    def step(self, step: int) -> list[Scored]:
        """The pieces of one step. All rows are drawn, because they come from one generator, and the own ones kept."""
        batch = draw(self.task, self.seed, "train", step, self.batch_size)
        total = int((batch.targets != IGNORE).sum())
        size = self.batch_size // (self.pieces * self.ranks)
        shares = [batch.rows(i, i + size) for i in range(self.rank * size, self.batch_size, self.ranks * size)]
        return [replace(scored(share.inputs, share.targets, self.pin), total=total) for share in shares]

    def steps(self, start: int, stop: int) -> Iterator[list[Scored]]:
        """The pieces of steps start .. stop - 1."""
        return ahead(self.step, start, stop)


def ahead(draw_step: Callable[[int], T], start: int, stop: int) -> Iterator[T]:
    """What `draw_step` draws for steps start .. stop - 1.

    While step s computes, one background thread draws step s + 1 (the kernels release the GIL).
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        drawn = thread.submit(draw_step, start)
        for step in range(start, stop):
            now = drawn.result()
            if step + 1 < stop:
                drawn = thread.submit(draw_step, step + 1)
            yield now


@dataclass(frozen=True)
class Graded:
    """One evaluation batch: tokens, and every position that has a target or an answer.

    `first` marks the first answer of each row. The counts are kept apart, so that no device is asked for them.
    """

    tokens: Int64[Tensor, "batch pos"]
    index: Int64[Tensor, " graded"]
    targets: Int64[Tensor, " graded"]
    answers: Int64[Tensor, " graded"]
    first: Bool[Tensor, " graded"]
    n_targets: int
    n_answers: int
    n_first: int


def graded(batch: Batch, device: torch.device | None = None) -> Graded:
    """Prepare a batch for evaluation."""
    has_target, has_answer = batch.targets != IGNORE, batch.answers != IGNORE
    first = has_answer & (has_answer.cumsum(axis=1) == 1)
    index = np.flatnonzero(has_target | has_answer)
    arrays = [np.ascontiguousarray(batch.inputs), index]
    arrays += [x.reshape(-1)[index] for x in (batch.targets, batch.answers, first)]
    tokens, at, targets, answers, is_first = (torch.from_numpy(array).to(device) for array in arrays)
    counts = (int(mask.sum()) for mask in (has_target, has_answer, first))
    return Graded(tokens, at, targets, answers, is_first, *counts)
