"""Scores of methods against exact effects."""

from collections.abc import Sequence

import pandas as pd

from ihlab.attribution.problems import Problem


def compare(p: Problem, methods: Sequence[str] | None = None, nodes: str = "head") -> pd.DataFrame:
    """Score methods (default: all that can handle the nodes) against `exact`."""
    raise NotImplementedError
