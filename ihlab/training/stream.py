"""Training and evaluation batches: pure functions of (task, seed, split, step), drawn ahead on a thread."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from tasks import IGNORE, Batch, Task

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
    - `count`: how many targets are not padding.
    """

    tokens: Int64[Tensor, "batch pos"]
    index: Int64[Tensor, " scored"]
    targets: Int64[Tensor, " scored"]
    count: int

    def to(self, device: torch.device) -> "Scored":
        """A copy on a device, without waiting for it."""
        tokens, index, targets = (x.to(device, non_blocking=True) for x in (self.tokens, self.index, self.targets))
        return Scored(tokens, index, targets, self.count)


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
    return Scored(tensors[0], tensors[1], tensors[2], count)


class Stream:
    """The training batches of a run from step `start` on, each in `pieces` for gradient accumulation.

    While step s computes, one background thread draws step s + 1 (the kernels release the GIL).
    """

    def __init__(self, task: Task, seed: int, batch_size: int, pieces: int = 1, pin: bool = False) -> None:
        self.task, self.seed, self.batch_size, self.pieces, self.pin = task, seed, batch_size, pieces, pin

    def step(self, step: int) -> list[Scored]:
        """The batch of one step."""
        batch = draw(self.task, self.seed, "train", step, self.batch_size)
        size = self.batch_size // self.pieces
        pieces = [batch.rows(i, i + size) for i in range(0, self.batch_size, size)]
        return [scored(piece.inputs, piece.targets, self.pin) for piece in pieces]

    def steps(self, start: int, stop: int) -> Iterator[list[Scored]]:
        """The batches of steps start .. stop - 1."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            ahead = thread.submit(self.step, start)
            for step in range(start, stop):
                now = ahead.result()
                if step + 1 < stop:
                    ahead = thread.submit(self.step, step + 1)
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
