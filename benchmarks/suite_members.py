"""Write docs/suite_members.md: all members of the suite that can be loaded, with a table and a
picture per task.
"""

from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from math import isnan
from pathlib import Path
from typing import Any

import tyro
from circuit import LEAST_SWING, Measured, circuits
from PIL import Image

from ihlab.plots.style import write_picture
from ihlab.storage.files import write_text
from ihlab.study.page import template
from ihlab.suite.members import HAND_SET, LEARNED, accuracy_of, models, run, task_of
from ihlab.suite.truth import truth


def write(folder: Path, root: Path = Path("runs")) -> Path:
    """Write `suite_members.md`, and a picture per task, to a folder; `root` has the members. Return
    the page.

    Raises `OSError` for a folder in which no file can be written.
    """
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
    page = template(Path(__file__).with_suffix(".md.jinja"))
    write_text(
        path, page.render(date=datetime.now().date(), **versions, least=LEARNED, tasks=tasks)
    )
    return path


def _measured(name: str, seed: int, root: str | Path) -> Measured:
    curve = (
        None
        if name in HAND_SET
        else run(name, seed, root).metrics.set_index("step")[accuracy_of(name)]
    )
    return curve, truth(name, seed, root=root)


def _row(name: str, seeds: Iterable[Measured]) -> dict[str, Any]:
    """Return the cells of a member's row."""
    of_seeds = [truths for _, truths in seeds]
    answering = [
        each["heads"] if abs(each["swing"]) >= LEAST_SWING else each["heads"][:0]
        for each in of_seeds
    ]
    largest = [heads.groupby("layer")["fraction"].max() for heads in answering]
    n_layers = of_seeds[0]["heads"]["layer"].max() + 1
    accuracies = [each["accuracy"][accuracy_of(name)] for each in of_seeds]
    layers = [_span([by_layer.get(layer) for by_layer in largest], 2) for layer in range(n_layers)]
    return {
        "member": name,
        "learned": f"{sum(each >= LEARNED for each in accuracies)} of {len(accuracies)}",
        "accuracy": _span(accuracies, 2),
        "random_repeats": _span(
            [each["control"]["accuracy"] for each in of_seeds if each["control"]], 2
        ),
        "onset": _span([each.get("onset") for each in of_seeds], 0),
        "swing": _span([each["swing"] for each in of_seeds], 1),
        "layers": ", ".join(filter(None, layers)),
    }


def _span(values: list[float | None], digits: int) -> str:
    """Return the smallest and largest number as text, and how many are missing; "" if there is no
    number.
    """
    there = [
        f"{value:z.{digits}f}"
        for value in sorted(value for value in values if value is not None and not isnan(value))
    ]
    missing = f" ({len(values) - len(there)} without)" if there and len(there) < len(values) else ""
    return "–".join(dict.fromkeys(there[:1] + there[-1:])) + missing


if __name__ == "__main__":
    print(tyro.cli(write))
