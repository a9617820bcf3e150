"""Run the full fault campaigns; `make faults` writes their table to `docs/faults.md`."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tyro
from rich.console import Console

from ihlab.files import write_text
from tests.faults import damage, fuzz, kills, memory, strangers
from tests.faults.table import Row

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

BETWEEN = 5 * 2**29, 2**32
"""Limits of memory, in bytes: from what the libraries need to load, to what the training needs."""

TEXT = """# Faults: what was tried, and what failed

Made by `make faults` (`tests/faults`): training killed at random and in the middle of writing a file, stored runs
damaged in every way that we could think of, hostile values through Python and the command line, files from a stranger,
and too little memory. A fault fails unless the answer is one sentence that names it, or the result of an undisturbed
run, byte for byte. A stranger's files also fail if the reader's own files are shown or changed.

{table}

{times} of wall time, seed {seed}. Each campaign is itself tested: with a check taken away, or with the
optimiser's state or the running loss dropped where a run goes on, it must report failures (`tests/faults/test_*.py`).

## Files from a stranger

One module, `ihlab.stored`, opens files that somebody else may have made. It bounds their size before it reads them.
What is wrong with a file is one sentence that names the file.

**A run folder.** No code in it is run: nothing is unpickled, and no module is imported. A path in its `config.json` is
read only if you name the path, too (`--corpus`, or `tasks.config.name_path`). Training writes through no link, and
removes only its own partial files. Not promised: its numbers may be invented, because checksums find damage and not
forgery. A link may have ihlab read another file of yours as a table or as weights.

**A model folder** (`--hf`). No code in it is run, and none is fetched. Weights come from safetensors files of the
folder itself. A config that needs more weights than are stored is refused before anything of that size is made.
Not promised: `transformers` reads the config and the tokenizer, so a fault of its own is a fault here. It also fetches
a model that you give by its name on the hub.

**A sweep file.** It names fields of runs and nothing else: no module is imported. A folder of texts that it names is
read only if you name it, too (`--corpus`). Not promised: it may ask for more or longer runs than you want to pay for.

**A plug-in**, or `module:Class`. One that fails or leaves Python when it is imported is named, and all else works. Not
promised: it is code that you installed or named, so it may do whatever you may.

**A viewer page.** A page that ihlab makes runs its own script only, loads nothing and sends nothing: its policy forbids
it. The text of a token is never markup. Not promised: a page that somebody else wrote may not be one of ihlab's.

Not covered: other users who can write to your run folders while ihlab runs, and the memory and time of runs that you
start yourself beyond the bound that is checked before training. Nor is a limit of memory (`ulimit -v`) that is too low
for the libraries to load: at some limits OpenBLAS then tries to allocate its buffer forever.
"""


def main(
    kills_tried: int = 200,
    cells: int | None = None,
    examples: int = 5000,
    openings: int | None = None,
    limits: int = 20,
    seed: int = 0,
    page: Path = PAGE,
) -> None:
    """Run the campaigns of faults and write their table.

    Args:
        kills_tried: Number of times that training is killed.
        cells: Number of combinations of damage and reading to try; all by default.
        examples: Number of hostile values to try.
        openings: Number of openings to try, per type of untrusted file; all by default.
        limits: Number of memory limits under which training is tried.
        seed: Seed of all random draws.
        page: The page to write.
    """
    campaigns: dict[str, Callable[[Path], list[Row]]] = {
        "kills": lambda folder: kills.campaign(kills_tried, seed, folder),
        "damage": lambda folder: damage.campaign(cells, seed, folder),
        "values": lambda folder: fuzz.campaign(examples, seed, folder),
        "strangers": lambda folder: strangers.campaign(openings, seed, folder),
        "memory": lambda folder: memory.campaign(limits, seed, folder, *BETWEEN),
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
