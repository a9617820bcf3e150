"""Rows of the table of faults."""

from typing import NamedTuple


class Row(NamedTuple):
    """Faults of one kind: how many were tried, and how many failed."""

    what: str
    tried: int
    failed: int
