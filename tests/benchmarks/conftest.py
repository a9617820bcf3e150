"""Benchmarks are scripts that import each other by their bare names."""

import sys
from pathlib import Path

from tests.suite.conftest import built, few_prompts, short

__all__ = ["built", "few_prompts", "short"]

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
