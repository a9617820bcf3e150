"""Rows of the table of faults."""

from typing import NamedTuple


class Row(NamedTuple):
    """Faults of one kind: the number tried, and the number failed."""

    what: str
    tried: int
    failed: int
