"""Write a page on all members that can be loaded, with a table and a picture per task."""

import math
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image

from ihlab.files import as_folder, write_text
from ihlab.plots.circuit import LEAST_SWING, Measured, circuits
from ihlab.plots.style import write_picture
from ihlab.study.markdown import table
from ihlab.suite.members import HAND_SET, LEARNED, accuracy_of, models, run, task_of
from ihlab.suite.truth import truth

HEAD = """# The members of the suite

`ihlab suite gallery` wrote this page on {date}, with ihlab {ihlab} and torch {torch}, of all members that
`ihlab suite build` had trained. [The guide](guides/suite.md) says how to use them. A range goes from the lowest
to the highest seed.

| column | what it is |
| --- | --- |
| learned | number of seeds with an accuracy of at least {learned} |
| accuracy | on 512 held-out sequences; after the most hops where several are asked; triggers: of repeated triggers |
| onset | first step at which that accuracy is halfway from the best guess to 1, in seeds that learned the task |
| swing | logit difference on clean minus on corrupted prompts |
| by layer | the largest effect of a head of each layer, from layer 0 on, as a fraction of the swing |

In the pictures, the left panel has the accuracy by training step. The others have the circuit of each seed, one disc
per head. Red is a positive effect, blue a negative one; the colour is full at the size of the swing. A bold
outline marks a *true* head: its effect, or what its corrupted output costs a clean prompt, is at least a tenth of the
swing. Letters are its true inputs: queries, keys or values. A line is a true path from a head to an input of a later
head, and is wider for a larger effect. Where the swing is below one logit there is no difference to explain:
effects are left out."""

COLUMNS = ("member", "learned", "accuracy", "onset", "swing", "by layer")


def gallery(folder: str | Path, root: str | Path = "runs") -> Path:
    """Write `suite_members.md`, and a picture per task, of all members that can be loaded; return the page.

    Raises `OSError` for a folder in which no file can be written.
    """
    folder, listed = as_folder("folder", folder), models(root)
    there = dict(zip(listed["name"], listed["seeds"].str.split(), strict=True))
    parts = [HEAD.format(date=datetime.now().date(), ihlab=version("ihlab"), torch=version("torch"), learned=LEARNED)]
    for task in dict.fromkeys(map(task_of, there)):
        members = {
            name: {int(seed): _measured(name, int(seed), root) for seed in seeds}
            for name, seeds in there.items()
            if seeds and task_of(name) == task
        }
        if members:
            picture = folder / f"suite-{task}.png"
            write_picture(circuits(members), picture)
            with Image.open(picture) as image:
                image.convert("RGB").quantize(256).save(picture, optimize=True)  # half of the size
            rows = [_row(name, seeds.values()) for name, seeds in members.items()]
            parts += [f"## {task}", table(COLUMNS, rows), f"![Accuracy and circuits of {task}]({picture.name})"]
    path = folder / "suite_members.md"
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def _measured(name: str, seed: int, root: str | Path) -> Measured:
    curve = None if name in HAND_SET else run(name, seed, root).metrics.set_index("step")[accuracy_of(name)]
    return curve, truth(name, seed, root=root)


def _row(name: str, seeds: Iterable[Measured]) -> list[str]:
    of_seeds, column = [truths for _, truths in seeds], accuracy_of(name)
    accuracy = [each["accuracy"][column] for each in of_seeds]
    control = [each["control"]["accuracy"] for each in of_seeds if each["control"]]
    swings = [each["swing"] for each in of_seeds]
    answering = [each["heads"] if abs(each["swing"]) >= LEAST_SWING else each["heads"][:0] for each in of_seeds]
    heads = [each.groupby("layer")["fraction"].max() for each in answering]
    n_layers = of_seeds[0]["heads"]["layer"].max() + 1
    layers = [_range([largest.get(layer, np.nan) for largest in heads]) for layer in range(n_layers)]
    shown = _range(accuracy) + (f", random repeats {_range(control)}" if control else "")
    learned = f"{sum(each >= LEARNED for each in accuracy)} of {len(of_seeds)}"
    onsets = _range([math.nan if each.get("onset") is None else each["onset"] for each in of_seeds], 0)
    return [name, learned, shown, onsets, _range(swings, 1), ", ".join(filter(None, layers))]


def _range(values: list[float], digits: int = 2) -> str:
    """Return the smallest and largest number as text, and how many are missing; "" if there is no number."""
    there = [f"{value + 0.0:.{digits}f}" for value in np.round(sorted(values), digits) if not np.isnan(value)]
    missing = f" ({len(values) - len(there)} without)" if there and len(there) < len(values) else ""
    return "–".join(dict.fromkeys(there[:1] + there[-1:])) + missing
