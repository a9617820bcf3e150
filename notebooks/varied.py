"""Vary a figure: draw it from its stored table, or train it with other seeds, rates, steps or sizes."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ihlab.study.experiment import Planned, require_scale
from ihlab.study.find import stored, study
from ihlab.study.ledger import Folder
from ihlab.study.make import make
from ihlab.training.config import RunConfig
from tasks.config import require

FIGURES, RUNS, SCRATCH = Path("../figures"), Path("../runs"), Path("scratch")


def figure(name: str, scale: str = "laptop", *, jobs: int | None = None, **changes: Any) -> Folder:
    """Return the folder of a figure in `SCRATCH`: its picture, its table and its claims.

    If nothing is changed, the figure is drawn from its stored table, without training. Otherwise, or if there is no
    table, its runs are trained, showing progress. Finished runs are reused. The stored figure is never changed.

    - `changes`: those of `plans`; None for none;
    - `jobs`: as in `ihlab reproduce`.

    Raises `ConfigError` as `plans` does.
    """
    chosen = study(name, FIGURES)
    known_scale = require_scale(chosen, scale)
    changes = {change: value for change, value in changes.items() if value is not None}
    folder, published = (
        Folder(SCRATCH / name, known_scale),
        Folder(stored(FIGURES)[name], known_scale),
    )
    if (
        all(change in ("rate", "steps") and value == 1 for change, value in changes.items())
        and published.picture.exists()
    ):
        folder.publish(chosen, published.data(), curves=published.curves())
    else:
        make(chosen, folder, jobs, "auto", RUNS, None, partial(varied, chosen, **changes))
    return folder


def plans(name: str, scale: str = "laptop", **changes: Any) -> list[Planned]:
    """Return the planned runs of a figure with changes. If it has several stages, return those of the first.

    - `seeds`: number of runs of every curve. If rates are tuned, it applies to the second stage;
    - `rate`, `steps`: factors on every run's learning rate and number of steps. A tuned rate includes the factor;
    - other names: fields of the model or the task, such as d_model or vocab_size, set in every run. The model follows
      its task: d_vocab and n_ctx are set from vocab_size and length.

    Raises `ConfigError` for an unknown figure, scale or field, for a field in which the figure's curves differ, and
    for invalid values.
    """
    chosen = study(name, FIGURES)
    return varied(chosen, chosen.runs(require_scale(chosen, scale)), 1, **changes)


def varied(
    chosen: Any,
    planned: list[Planned],
    stage: int,
    seeds: int | None = None,
    rate: float = 1.0,
    steps: float = 1.0,
    **sizes: Any,
) -> list[Planned]:
    """Return the planned runs of a stage with the changes of `plans`."""
    require(seeds is None or seeds >= 1, f"seeds is {seeds}, but must be at least 1.")
    require(rate > 0, f"rate is {rate}, but must be a positive factor.")
    require(steps > 0, f"steps is {steps}, but must be a positive factor.")
    if stage == 2 and chosen.tuned is None:
        return planned  # they continue runs that have the changes
    for name in sizes:
        configs = [config for plan in planned for config in (plan.config.task, plan.config.model)]
        values = {getattr(config, name) for config in configs if hasattr(config, name)}
        require(
            len(values) <= 1, f"{name} cannot be set: the curves of {chosen.name} differ in it."
        )
    if seeds is not None and (stage == 2 or chosen.tuned is None):
        planned = _seeded(planned, seeds)
    changed = []
    for plan in planned:
        config = _resized(plan.config, sizes).replace(
            steps=max(1, round(plan.config.steps * steps))
        )
        changed.append(
            replace(plan, config=config.replace(lr=config.lr * (rate if stage == 1 else 1.0)))
        )
    return changed


def _seeded(planned: list[Planned], seeds: int) -> list[Planned]:
    """Return the first seeds of every curve, with new seeds after its last one if it has too few."""
    curves: dict[tuple[str, str], list[Planned]] = {}
    for plan in planned:
        curves.setdefault((plan.cell_name, plan.config.replace(seed=0).digest), []).append(
            plan
        )  # digests ignore names
    chosen = []
    for of_curve in curves.values():
        last = of_curve[-1]
        first, used = last.config.seed + 1, last.config.name.removesuffix(str(last.config.seed))
        chosen += of_curve[:seeds]
        for seed in range(first, first + seeds - len(of_curve)):
            chosen.append(
                replace(last, config=last.config.replace(seed=seed, name=f"{used}{seed}"))
            )
    return chosen


_FOLLOWS = {"vocab_size": "d_vocab", "length": "n_ctx"}


def _resized(config: RunConfig, sizes: dict[str, Any]) -> RunConfig:
    of_task = {name: value for name, value in sizes.items() if hasattr(config.task, name)}
    follows = {_FOLLOWS[name]: value for name, value in of_task.items() if name in _FOLLOWS}
    of_model = {name: value for name, value in sizes.items() if name not in of_task}
    task: Any = replace(config.task, **of_task)  # type: ignore[type-var]
    return config.replace(task=task, model=config.model.replace(**of_model, **follows))


def explore(folder: Folder) -> Any:
    """Return the interactive picture of a figure that `figure` made."""
    return study(folder.experiment, FIGURES).draw_interactive(folder.pictured(), folder.scale)
