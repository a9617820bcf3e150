"""Figures at smoke scale, made once for all tests: starting worker processes takes longer than the
runs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from ihlab.study.ledger import Folder
from ihlab.study.reproduce import reproduce
from ihlab.training.run import Run
from tests.figures.live import FIGURES, HOMES, copy_code, live

SMOKE = tuple("figure2 figure8 figure9 table5 table4 basin_map text".split())


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
def smoke(smoke_root: Path) -> Callable[[str], tuple[Path, Folder]]:
    """Return a function from an experiment's name to the root (with runs in `runs`) and its
    figure's folder.

    Tests must not change them.
    """

    def made(name: str) -> tuple[Path, Folder]:
        return smoke_root, Folder(
            smoke_root / "figures" / HOMES[name].relative_to(FIGURES), "smoke"
        )

    return made


@pytest.fixture(scope="session")
def trained(smoke_root: Path) -> Callable[[str], list[tuple[str, Run]]]:
    """Return a function from an experiment's name to its runs of both stages, each with its curve."""

    def opened(name: str) -> list[tuple[str, Run]]:
        experiment = live()[name]
        runs = [
            (plan.cell_name, Run.create(plan.config, smoke_root / "runs"))
            for plan in experiment.runs("smoke")
        ]
        if hasattr(experiment, "follow"):
            later = experiment.follow(runs, "smoke")
            runs += [
                (plan.cell_name, Run.create(plan.config, smoke_root / "runs")) for plan in later
            ]
        return runs

    return opened
