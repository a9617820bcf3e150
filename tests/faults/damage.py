"""Damage to run folders: every file x every kind of damage x every way to read a run, each in at
most `SECONDS`.

Each must raise one sentence that names the file, or give the same result as the undamaged folder.
"""

import random
import shutil
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from ihlab import Run
from tests.faults.kinds_of_damage import (
    ANY_FILE,
    OF_CHECKPOINTS,
    Damage,
    Damages,
    of_json,
    of_metrics,
    of_tensors,
)
from tests.faults.table import Row, Tally, sample
from tests.faults.ways_in import (
    CONFIG,
    FINISHED,
    LONGEST,
    STOPPED,
    STOPPED_AT,
    Refused,
    Way,
    pristine,
    result,
)


class Cell(NamedTuple):
    """A cell of the matrix: a file (by its path in the run folder), its damage, and a way to read a
    root of runs.
    """

    file: str
    what: str
    damage: Damage
    root: str
    way: Way


READERS = {
    "config.json": ("opened", "listed", "heads"),
    "metrics.csv": ("metrics", "listed", "view", "resumed"),
    "done.json": ("model", "listed", "ended"),
    "weights": ("model", "heads", "view", "forked", "resumed"),
    "optimiser state": ("forked", "resumed"),
}
"""For damage inside a file, the ways that read it. Damage to a whole file is tried with all ways.
"""


def matrix(folder: Path) -> list[Cell]:
    """Return every cell, for the roots that `pristine` made in a folder."""
    cells = []
    roots = (("finished", FINISHED, CONFIG.steps), ("stopped", STOPPED, STOPPED_AT))
    for root, ways, last in roots:
        run = Run.open(CONFIG.folder(folder / root))
        for file in _files(run, last):
            whole, inside = _damages(run.folder / file)
            readers = [way for way in ways if way.__name__ in READERS.get(_kind(file), ())]
            tried = [*product(whole.items(), ways), *product(inside.items(), readers)]
            for (what, damage), way in tried:
                if (file, what) not in ANOTHER_STATE:
                    cells.append(Cell(file, what, damage, root, way))
    return cells


def _files(run: Run, last: int) -> list[str]:
    own = [run.checkpoint_path(last), run.optimizer_path(last)]
    files = [f"checkpoints/{path.name}" for path in own]
    if run.done:
        files.append("done.json")
    return ["config.json", "metrics.csv", "checkpoints", *files]


def _damages(path: Path) -> tuple[Damages, Damages]:
    """Return the kinds of damage to the whole file, and to its content."""
    if path.is_dir():
        return OF_CHECKPOINTS, {}
    inside = {".json": of_json, ".csv": of_metrics, ".safetensors": of_tensors}[path.suffix]
    return ANY_FILE, inside(path)


def _kind(file: str) -> str:
    """Return the type of a file, without its step."""
    if not file.endswith(".safetensors"):
        return file
    return "optimiser state" if ".optimizer." in file else "weights"


ANOTHER_STATE = {
    ("done.json", "missing"): "a run that is not finished",
    ("config.json", "task.kind is a word"): "a run of a task from outside",
    ("config.json", "name is a word"): "a run under another name, which its hash leaves out",
    ("config.json", "without name"): "likewise",
    **{
        (
            f"checkpoints/step-{step}.safetensors",
            "missing",
        ): "a run with a checkpoint fewer: the viewer shows the others"
        for step in CONFIG.checkpoint_steps()[1:-1]
    },
}
"""Changes that give another valid folder instead of a damaged one."""


def outcomes(cells: Iterable[Cell], rng: random.Random, folder: Path) -> Iterator[tuple[Cell, str]]:
    """Try cells of `matrix(folder / "sound")`. Yield each with its fault, "" if there is none."""
    sound: dict[tuple[str, Way], str | Refused] = {}
    for cell in cells:
        if (cell.root, cell.way) not in sound:
            sound[cell.root, cell.way] = result(cell.way, _copied(folder, cell.root))
        damaged = _copied(folder, cell.root)
        cell.damage(damaged / cell.file, rng)
        found = result(cell.way, damaged)
        yield cell, _wrong(cell, damaged, found, sound[cell.root, cell.way])


def _copied(folder: Path, root: str) -> Path:
    """Copy an undamaged root to the folder that will be read, and return the folder of the run to
    damage.
    """
    tried = folder / "tried"
    if tried.exists():
        shutil.rmtree(tried)
    shutil.copytree(folder / "sound" / root, tried)
    return CONFIG.folder(tried)


def _wrong(cell: Cell, folder: Path, found: str | Refused, sound: str | Refused) -> str:
    assert isinstance(sound, str), sound
    if isinstance(found, str):
        return "" if found == sound else f"another result: {found[-300:]!r}"
    name = Path(cell.file).name
    named = name in found.sentence or (cell.what == "missing" and folder.name in found.sentence)
    added = cell.what.removeprefix("with ")
    one = (
        found.sentence.endswith((".", "?"))
        and "\n" not in found.sentence
        and len(found.sentence) <= LONGEST
    )
    right = one and (named or added in found.sentence)
    return "" if right else f"no sentence that names {name}: {found.sentence[:300]!r}"


def campaign(limit: int | None, seed: int, folder: Path) -> list[Row]:
    """Return a row per file of a run: the number of ways in which it was damaged and read, and of
    wrong answers.

    - `limit`: number of cells of the matrix to try, drawn with `seed`; None: all;
    - `folder`: the folder in which runs are made, damaged and read.

    Wrong answers are printed to stderr.
    """
    pristine(folder / "sound")
    tally, rng = Tally(), random.Random(seed)
    cells = sample(matrix(folder / "sound"), limit, rng)
    for cell, wrong in outcomes(cells, rng, folder):
        about = f"{cell.file} {cell.what}, {cell.way.__name__} ({cell.root})"
        tally.add(f"damaged {_kind(cell.file)}", wrong, about)
    return sorted(tally.rows())
