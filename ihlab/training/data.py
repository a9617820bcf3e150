"""Training batches: the microbatches of each step, prefetched on a thread."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from ihlab.measure.batches import draw
from ihlab.measure.rows import Scored, scored
from tasks import IGNORE, Task
from tasks.config import require

T = TypeVar("T")


class Stream:
    """Training batches of a run, each split into `pieces` microbatches for gradient accumulation.

    Each of `ranks` processes takes its share of every microbatch; together they have the rows of a single process.
    Raises `ConfigError` if the microbatches cannot be shared out evenly.
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
            f"RunConfig.batch_size is {batch_size}, which {pieces} microbatch(es) (accumulate) for each of {ranks} "
            f"processes do not divide: it must be a multiple of {pieces * ranks}.",
        )
        self.task, self.seed, self.batch_size, self.pin = task, seed, batch_size, pin
        self.pieces, self.rank, self.ranks = pieces, rank, ranks

    def step(self, step: int) -> list[Scored]:
        """Return the microbatches of one step. All ranks' rows come from one generator: the others' are dropped."""
        batch = draw(self.task, self.seed, "train", step, self.batch_size)
        total = int((batch.targets != IGNORE).sum())
        size = self.batch_size // (self.pieces * self.ranks)
        shares = [batch.rows(i, i + size) for i in range(self.rank * size, self.batch_size, self.ranks * size)]
        return [replace(scored(share.inputs, share.targets, self.pin), total=total) for share in shares]

    def steps(self, start: int, stop: int) -> Iterator[list[Scored]]:
        """Yield the microbatches of steps start .. stop - 1, prefetched."""
        return prefetch(self.step, start, stop)


def prefetch(draw_step: Callable[[int], T], start: int, stop: int) -> Iterator[T]:
    """Yield `draw_step(s)` for steps s = start .. stop - 1.

    While step s trains, one background thread draws step s + 1 (the kernels release the GIL).
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        drawn = thread.submit(draw_step, start)
        for step in range(start, stop):
            now = drawn.result()
            if step + 1 < stop:
                drawn = thread.submit(draw_step, step + 1)
            yield now
