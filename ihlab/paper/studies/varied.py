"""Vary a figure: draw it from its stored table, or train it with other seeds, rates, steps or sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ihlab.model.config import ModelConfig
from ihlab.paper.studies.registry import EXPERIMENTS
from ihlab.study.experiment import Experiment, Planned, Scale, has_second_stage, require_scale
from ihlab.study.ledger import Folder
from ihlab.study.make import make
from ihlab.training.config import ForkConfig, RunConfig
from tasks.config import choose, require


def figure(
    experiment: str,
    scale: str = "laptop",
    *,
    seeds: int | None = None,
    rate: float = 1.0,
    steps: float = 1.0,
    jobs: int | None = None,
    device: str = "auto",
    stored: str | Path = "../figures",
    scratch: str | Path = "scratch",
    runs: str | Path = "../runs",
    **sizes: Any,
) -> Folder:
    """Return the folder of a figure under `scratch`: its picture, its table and its claims.

    If nothing is changed, the figure is drawn from the table in `stored`, without training. Otherwise, or if there is
    no table, its runs are trained, showing progress. Finished runs are reused. `stored` is never written to.

    - `seeds`: number of runs of every curve; None keeps the scale's number;
    - `rate`, `steps`: factors on every run's learning rate and number of steps;
    - `sizes`: fields of the model, the task or the run, such as d_model or vocab_size, set in every run. None keeps the
      scale's value. The model follows its task: d_vocab and n_ctx are set from vocab_size and length;
    - `jobs`, `device`: as in `reproduce`.

    Raises `ConfigError` for an unknown figure, scale or field, for a field in which the figure's curves differ, and
    for invalid values.
    """
    chosen, at, changes = _checked(experiment, scale, seeds, rate, steps, sizes)
    folder, kept = Folder(Path(scratch), chosen.name, at), Folder(Path(stored), chosen.name, at)
    if changes == Changes() and (kept.path / "data.csv").exists():
        folder.publish(chosen, kept.data(), curves=kept.curves())
    else:
        make([chosen], [folder], jobs, device, Path(runs), None, partial(changes.apply, chosen))
    return folder


def plans(
    experiment: str,
    scale: str = "laptop",
    *,
    seeds: int | None = None,
    rate: float = 1.0,
    steps: float = 1.0,
    **sizes: Any,
) -> list[Planned]:
    """Return the runs of a figure, or of its first stage, with the changes that `figure` makes."""
    chosen, at, changes = _checked(experiment, scale, seeds, rate, steps, sizes)
    return changes.apply(chosen, chosen.runs(at), 1)


def _checked(
    experiment: str, scale: str, seeds: int | None, rate: float, steps: float, sizes: dict[str, Any]
) -> tuple[Experiment, Scale, "Changes"]:
    """Return an experiment, its scale and the changes to its runs. Raises `ConfigError` for invalid ones."""
    chosen = EXPERIMENTS[choose("experiment", experiment, EXPERIMENTS)]
    at = require_scale(chosen, scale)
    require(seeds is None or seeds >= 1, f"seeds is {seeds}, but must be at least 1.")
    require(rate > 0, f"rate is {rate}, but must be a positive factor.")
    require(steps > 0, f"steps is {steps}, but must be a positive factor.")
    return chosen, at, Changes(seeds, rate, steps, {name: size for name, size in sizes.items() if size is not None})


@dataclass(frozen=True)
class Changes:
    """Changed values in the runs of an experiment, as in `figure`."""

    seeds: int | None = None
    rate: float = 1.0
    steps: float = 1.0
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, experiment: Experiment, planned: list[Planned], stage: int) -> list[Planned]:
        """Return the planned runs of a stage with these values.

        If there is a second stage, the number of seeds applies to it, and the first keeps all its tuning seeds. `rate`
        applies only to the first: the second stage uses the rates found there, which already include it.
        """
        for name in self.sizes:
            values = {_value(plan.config, name) for plan in planned}
            require(len(values) <= 1, f"{name} cannot be set: the curves of {experiment.name} differ in it.")
        continued = self.seeds is not None and any(isinstance(plan.config, ForkConfig) for plan in planned)
        require(
            not continued, f"seeds cannot be set: runs of {experiment.name} continue other runs, which fix the seeds."
        )
        if self.seeds is not None and (stage == 2 or not has_second_stage(experiment)):
            planned = _seeded(planned, self.seeds)
        return [replace(plan, config=self._config(plan.config, self.rate if stage == 1 else 1.0)) for plan in planned]

    def _config(self, config: RunConfig, rate: float) -> RunConfig:
        changed = config.replace(lr=config.lr * rate, steps=max(1, round(config.steps * self.steps)))
        for name, value in self.sizes.items():
            changed = _set(changed, name, value)
        return changed


def _seeded(planned: list[Planned], seeds: int) -> list[Planned]:
    """Return the first seeds of every curve, with new seeds after its last one if it has too few."""
    curves: dict[tuple[str, str], list[Planned]] = {}
    for plan in planned:
        curves.setdefault((plan.cell_name, plan.config.replace(seed=0).digest), []).append(plan)  # digests ignore names
    chosen = []
    for plans in curves.values():
        last = plans[-1]
        first, used = last.config.seed + 1, last.config.name.removesuffix(str(last.config.seed))
        more = (
            last.config.replace(seed=seed, name=f"{used}{seed}") for seed in range(first, first + seeds - len(plans))
        )
        chosen += [*plans[:seeds], *(replace(last, config=config) for config in more)]
    return chosen


_FOLLOWS = {"vocab_size": "d_vocab", "length": "n_ctx"}


def _place(config: RunConfig, name: str) -> str:
    """Return which part of a config has a field: "task", "model", or "" for the run itself."""
    parts = {"": RunConfig, "model": ModelConfig, "task": type(config.task)}
    known = {each.name: part for part, kind in parts.items() for each in fields(kind)}
    return known[choose("field", name, known.keys() - {"task", "model", "name", "seed", *_FOLLOWS.values()})]


def _value(config: RunConfig, name: str) -> Any:
    place = _place(config, name)
    return getattr(getattr(config, place) if place else config, name)


def _set(config: RunConfig, name: str, value: Any) -> RunConfig:
    place = _place(config, name)
    if place == "task":
        model = config.model.replace(**{_FOLLOWS[name]: value}) if name in _FOLLOWS else config.model
        return config.replace(task=replace(config.task, **{name: value}), model=model)  # type: ignore[type-var]
    return config.replace(**{place: getattr(config, place).replace(**{name: value})} if place else {name: value})
