"""The table of faults: what was tried, and how often it failed."""

import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Row(NamedTuple):
    """Faults of one kind: the number tried, and the number failed."""

    what: str
    tried: int
    failed: int


class Tally:
    """Counts of tries and failures by kind."""

    def __init__(self) -> None:
        self.tried, self.failed = Counter[str](), Counter[str]()

    def add(self, kind: str, wrong: str, about: str) -> None:
        """Count one try. If something is `wrong`, count a failure and print it to stderr."""
        self.tried[kind] += 1
        if wrong:
            self.failed[kind] += 1
            print(f"{about}: {wrong}", file=sys.stderr)

    def rows(self) -> list[Row]:
        """Return a row for each kind, in the order of the first tries."""
        return [Row(kind, tried, self.failed[kind]) for kind, tried in self.tried.items()]


def sample(every: Sequence[T], limit: int | None, rng: Random) -> Sequence[T]:
    """Return at most `limit` of the cases, drawn; None: all."""
    if limit is None or limit >= len(every):
        return every
    return rng.sample(every, limit)
