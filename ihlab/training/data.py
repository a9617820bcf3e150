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
