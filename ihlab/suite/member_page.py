"""Write a page on all members that can be loaded, with a table and a picture per task."""

from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL import Image

from ihlab.files import as_folder, write_text
from ihlab.plots.circuit import LEAST_SWING, Measured, circuits
from ihlab.plots.style import write_picture
from ihlab.suite.members import HAND_SET, LEARNED, accuracy_of, models, run, task_of
from ihlab.suite.template import filled
from ihlab.suite.truth import truth


def gallery(folder: str | Path, root: str | Path = "runs") -> Path:
    """Write `suite_members.md`, and a picture per task, of all members that can be loaded; return the page.

    Raises `OSError` for a folder in which no file can be written.
    """
    folder = as_folder("folder", folder)
    listed = models(root)
    seeds = dict(zip(listed["name"], listed["seeds"].str.split(), strict=True))
    tasks = []
    for task in dict.fromkeys(map(task_of, seeds)):
        members = {}
        for name, there in seeds.items():
            if there and task_of(name) == task:
                members[name] = {int(seed): _measured(name, int(seed), root) for seed in there}
        if members:
            picture = folder / f"suite-{task}.png"
            write_picture(circuits(members), picture)
            with Image.open(picture) as image:
                image.convert("RGB").quantize(256).save(picture, optimize=True)  # half of the size
            rows = [_row(name, measured.values()) for name, measured in members.items()]
            tasks.append({"name": task, "rows": rows, "picture": picture.name})
    path = folder / "suite_members.md"
    versions = {package: version(package) for package in ("ihlab", "torch")}
    write_text(path, filled("members", date=datetime.now().date(), **versions, least=LEARNED, tasks=tasks))
    return path


def _measured(name: str, seed: int, root: str | Path) -> Measured:
    curve = None if name in HAND_SET else run(name, seed, root).metrics.set_index("step")[accuracy_of(name)]
    return curve, truth(name, seed, root=root)


def _row(name: str, seeds: Iterable[Measured]) -> dict[str, Any]:
    """Return a member's name and its numbers, one for each seed."""
    of_seeds = [truths for _, truths in seeds]
    answering = [each["heads"] if abs(each["swing"]) >= LEAST_SWING else each["heads"][:0] for each in of_seeds]
    largest = [heads.groupby("layer")["fraction"].max() for heads in answering]
    n_layers = of_seeds[0]["heads"]["layer"].max() + 1
    return {
        "member": name,
        "accuracies": [each["accuracy"][accuracy_of(name)] for each in of_seeds],
        "random_repeats": [each["control"]["accuracy"] for each in of_seeds if each["control"]],
        "onsets": [each.get("onset") for each in of_seeds],
        "swings": [each["swing"] for each in of_seeds],
        "layers": [[by_layer.get(layer) for by_layer in largest] for layer in range(n_layers)],
    }
