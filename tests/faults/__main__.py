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

`make faults` (`tests/faults`) writes this table. It kills training at random and while it writes files, damages stored
runs in every way that we could think of, passes hostile values through Python and the command line, opens untrusted
files, and limits memory. A trial passes only if the answer is one sentence that names the fault, or the result of an
undisturbed run, byte for byte. A trial with untrusted files also fails if it shows or changes the reader's own files.

{table}

{times} of wall time, seed {seed}. Each campaign is itself tested: if a check is removed, or
a resumed run loses its optimiser state or running loss, the campaign must report failures (`tests/faults/test_*.py`).

## Untrusted files

One module, `ihlab.stored`, opens files that somebody else may have made. It limits their size before it reads them.
An error is one sentence that names the file.

**A run folder.** ihlab runs no code in it: nothing is unpickled, and no module is imported. It reads a path in
`config.json` only if you also name the path (`--corpus`, or `tasks.config.name_path`). Training does not write through
links, and removes only its own partial files. Not guaranteed: its numbers may be invented, because checksums detect
damage but not forgery. Through a link, ihlab may read another of your files as a table or as weights.

**A model folder** (`--hf`). ihlab neither runs nor downloads code. Weights come only from safetensors files in the
folder. A config that needs more weights than are stored is refused before anything of that size is allocated.
Not guaranteed: `transformers` reads the config and the tokenizer, so its faults apply here, too. It also downloads
a model that you name by its name on the hub.

**A sweep file.** It can only set fields of runs; no module is imported. ihlab reads a folder of texts in it only if
you also name the folder (`--corpus`). Not guaranteed: it may request more or longer runs than you want to pay for.

**A plug-in**, or `module:Class`. If its import fails or exits Python, ihlab names it and everything else works. Not
guaranteed: it is code that you installed or named, so it can do whatever you can.

**A viewer page.** A page made by ihlab runs only its own script, and its policy forbids it to load or send anything.
The text of a token is never markup. Not guaranteed: a page from somebody else may not have been made by ihlab.

Not covered: other users who can write to your run folders while ihlab runs, and memory and time of runs that you
start yourself, beyond the bound that is checked before training. Also not covered is a memory limit (`ulimit -v`) too
low for the libraries to load: at some limits OpenBLAS then tries to allocate its buffer forever.
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
