"""Run the full fault campaigns; `make campaigns` writes their table to `docs/faults.md`."""

import re
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

import tyro
from rich.console import Console

from ihlab.storage.files import write_text
from tests.faults import damage, fuzz, kills, strangers, surroundings
from tests.faults.table import Row

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

TABLE = re.compile(r"^\| fault .*?(?=^## )", re.DOTALL | re.MULTILINE)
"""The part of the page that is written anew: the first table, up to the next heading."""


def main(
    kills_tried: int = 200,
    examples: int = 5000,
    most: int | None = None,
    seed: int = 0,
    page: Path = PAGE,
) -> None:
    """Run the campaigns of faults and write their table.

    Args:
        kills_tried: Number of times that commands are killed.
        examples: Number of hostile values to try.
        most: Number of other trials per campaign; all by default.
        seed: Seed of all random draws.
        page: The page whose table is replaced.
    """
    campaigns: dict[str, Callable[[Path], list[Row]]] = {
        "kills": partial(kills.campaign, kills_tried, seed),
        "damage": partial(damage.campaign, most, seed),
        "values": partial(fuzz.campaign, examples, seed),
        "strangers": partial(strangers.campaign, most, seed),
        "surroundings": partial(surroundings.campaign, most, seed),
    }
    rows, times = [], []
    for name, campaign in campaigns.items():
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found = campaign(Path(folder))
        rows += found
        times.append(f"{(time.perf_counter() - started) / 60:.0f} minutes ({name})")
        Console().print(*found, times[-1], sep="\n")
    table = ["| fault | tried | failed |", "| --- | --- | --- |"]
    table += [f"| {row.what} | {row.tried} | {row.failed} |" for row in rows]
    table += ["", f"{date.today()}, seed {seed}: {', '.join(times)} of wall time.", "", ""]
    write_text(page, TABLE.sub("\n".join(table), page.read_text(encoding="utf-8"), count=1))
    if any(row.failed for row in rows):
        raise SystemExit("Some faults failed: the campaigns print which.")


if __name__ == "__main__":
    tyro.cli(main)
