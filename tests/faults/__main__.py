"""The three campaigns of faults in full; `make faults` writes the table of what was tried to `docs/faults.md`."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tyro
from rich.console import Console

from ihlab.files import write_text
from tests.faults import damage, fuzz, kills
from tests.faults.table import Row

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

TEXT = """# Faults: what was tried, and what failed

Made by `make faults` (`tests/faults`): training killed at random and in the middle of writing a file, stored runs
damaged in every way that we could think of, and hostile values through Python and the command line. A fault fails
unless the answer is one sentence that names it, or the result of an undisturbed run, byte for byte.

{table}

{times} of wall time, seed {seed}. Each campaign is itself tested: with a check taken away, or with the
optimiser's state or the running loss dropped where a run goes on, it must report failures (`tests/faults/test_*.py`).
"""


def main(
    kills_tried: int = 200, cells: int | None = None, examples: int = 5000, seed: int = 0, page: Path = PAGE
) -> None:
    """Run the campaigns of faults and write their table.

    Args:
        kills_tried: How many times training is killed.
        cells: How many of the ways to damage and read a run are tried; all by default.
        examples: How many hostile values are tried.
        seed: What everything is drawn from.
        page: The page to write.
    """
    campaigns: dict[str, Callable[[Path], list[Row]]] = {
        "kills": lambda folder: kills.campaign(kills_tried, seed, folder),
        "damage": lambda folder: damage.campaign(cells, seed, folder),
        "values": lambda folder: fuzz.campaign(examples, seed, folder),
    }
    rows, times = [], []
    for name, campaign in campaigns.items():
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            rows += campaign(Path(folder))
            wrong = Path(folder) / "wrong.txt"
            Console().print(wrong.read_text(encoding="utf-8") if wrong.exists() else "", markup=False)
        times.append(f"{(time.perf_counter() - started) / 60:.0f} minutes ({name})")
        Console().print(*rows, times[-1], sep="\n")
    table = ["| fault | tried | failed |", "| --- | --- | --- |"]
    table += [f"| {row.what} | {row.tried} | {row.failed} |" for row in rows]
    write_text(page, TEXT.format(table="\n".join(table), times=", ".join(times), seed=seed))
    if any(row.failed for row in rows):
        raise SystemExit("Some faults failed: the campaigns print which.")


if __name__ == "__main__":
    tyro.cli(main)
