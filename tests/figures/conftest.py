"""Figures at smoke scale, made once for all tests: starting worker processes takes longer than the
runs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from ihlab.study.experiment import Planned
from ihlab.study.reproduce import reproduce
from ihlab.training.run import Run
from tests.figures.live import copy_code, live

SMOKE = ("figure8", "table5", "text")
"""With and without curves and tuned rates. `make campaigns` makes all studies."""


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


@pytest.fixture(scope="session")
def trained(smoke_root: Path) -> Callable[[str], list[tuple[str, Run]]]:
    """Return a function from an experiment's name to its runs of both stages, each with its curve."""

    def opened(name: str) -> list[tuple[str, Run]]:
        def finished(planned: list[Planned]) -> list[tuple[str, Run]]:
            return [
                (plan.cell_name, Run.create(plan.config, smoke_root / "runs")) for plan in planned
            ]

        first = finished(live()[name].runs("smoke"))
        return first + finished(live()[name].follow(first, "smoke"))

    return opened
