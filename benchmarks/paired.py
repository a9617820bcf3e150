"""Timing that holds on a noisy machine: contenders take turns, and ratios are of turns side by side."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """The median and range of paired ratios."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} .. {self.high:.2f})"


def take_turns(contenders: dict[str, Callable[[], object]], rounds: int, warmup: int = 2) -> dict[str, list[float]]:
    """Seconds of each contender in each round: A B C, A B C, ..., after some rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(warmup + rounds):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(a: list[float], b: list[float]) -> Ratio:
    """a / b, round by round; the range leaves out a tenth at each end."""
    each = sorted(x / y for x, y in zip(a, b, strict=True))
    skip = len(each) // 10
    return Ratio(statistics.median(each), each[skip], each[-1 - skip])
