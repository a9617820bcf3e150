"""Figures at smoke scale, made once for all tests: starting worker processes takes longer than the
runs.
"""

from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from ihlab.study.reproduce import reproduce
from tests.figures.live import copy_code

SMOKE = ("figure8", "table5")
"""With and without curves. `make campaigns` makes all studies."""


@pytest.fixture(scope="session")
def smoke_root(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return the folder of the runs and figures of `SMOKE`, made by the first of pytest's workers
    that asks.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base if worker_id == "master" else base.parent) / "smoke"
    with FileLock(f"{root}.lock"):
        if not root.exists():
            aside = root.with_suffix(".partial")
            figures = copy_code(SMOKE, aside / "figures")
            reproduce(
                SMOKE, "smoke", runs=aside / "runs", figures=figures, console=Console(quiet=True)
            )
            aside.rename(root)
    return root
