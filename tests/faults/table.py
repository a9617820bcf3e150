"""The table that every campaign of faults fills."""

from typing import NamedTuple


class Row(NamedTuple):
    what: str
    tried: int
    failed: int
