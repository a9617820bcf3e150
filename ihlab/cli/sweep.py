"""The command that trains a grid of runs: `sweep`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ihlab.cli.terminal import console, print_table, text
from tasks.config import name_path

if TYPE_CHECKING:
    import pandas as pd


class SweepError(RuntimeError):
    """Some runs of a sweep failed. Their rows in its table say why."""


def sweep(
    grid: Annotated[Path, tyro.conf.Positional],
    /,
    engine: str = "local",
    jobs: int | None = None,
    device: str = "auto",
    root: Path = Path("runs"),
    out: Path | None = None,
    corpus: str | None = None,
) -> None:
    """Train every run of a grid, and write the results to one CSV. The same command resumes an interrupted sweep.

    Args:
        grid: A TOML file: the fields of a run, and lists of values for the fields to vary.
        engine: local (processes of this machine), or ray (its cores, or the cluster that RAY_ADDRESS names).
        jobs: Number of runs trained at a time; by default one per core, and 1 on a GPU with local.
        device: A torch device, or auto: a GPU if there is one.
        root: Folder of the runs. Finished runs are reused, interrupted runs are resumed.
        out: The CSV; by default the name of the grid's file and .csv, in this folder.
        corpus: The folder of texts that the grid names: it is read only if you name it here, too.
    """
    from ihlab.sweep.grid import read_grid
    from ihlab.sweep.results import FAILED
    from ihlab.sweep.sweep import sweep as run_sweep

    if corpus is not None:
        name_path(corpus)
    points = read_grid(grid)
    written = out or Path(f"{grid.stem}.csv")
    terminal = console()
    table = run_sweep(
        points,
        root,
        engine=engine,
        jobs=jobs,
        device=device,
        out=written,
        console=terminal,
    )
    print_table(_medians(table, list(points[0].swept)), "Medians over seeds")
    terminal.out(f"{text(written)}: {len(table)} runs", highlight=False)
    failed = int((table["status"] == FAILED).sum())
    if failed:
        raise SweepError(
            f"{failed} of {len(table)} runs failed; the column error of {written} says how."
        )


def _medians(table: "pd.DataFrame", swept: list[str]) -> "pd.DataFrame":
    """Return one row per setting: the number of runs and of finished ones, and the medians over the latter."""
    settings = [name for name in swept if name != "seed"]
    measured = ["accuracy_first", "steps_to_90"]
    done = table["status"] == "done"
    counted = table[settings].assign(done=done)
    numbers = table.reindex(columns=measured)  # without a finished run, the table has none
    counted[measured] = numbers.where(done).astype(float)
    by: list[Any] = settings or [0] * len(table)
    groups = counted.groupby(by, sort=False, dropna=False)
    medians = groups[measured].median()
    medians.insert(0, "done", groups["done"].sum())
    medians.insert(0, "runs", groups.size())
    return medians.reset_index(drop=not settings)
