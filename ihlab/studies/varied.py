"""A figure to play with: drawn from its stored table, or trained with other seeds, rates, steps or sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims.claim import Claim
from ihlab.claims.experiment import SCALES, Experiment, Planned, Scale, TwoStages
from ihlab.claims.ledger import Folder
from ihlab.claims.make import make
from ihlab.model.config import ModelConfig
from ihlab.studies.registry import EXPERIMENTS
from ihlab.training.config import RunConfig
from tasks.config import choose, require

if TYPE_CHECKING:
    from ihlab.training.run import Run


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

    If nothing is changed it is drawn from the table in `stored`, and nothing is trained. Otherwise, and where there is
    no table, its runs are trained, with progress; finished ones are reused. `stored` is never written to.

    - `seeds`: runs of every curve; None: as many as the scale has;
    - `rate`, `steps`: factors of every run's learning rate and number of steps;
    - `sizes`: fields of the model, the task or the run, such as d_model or vocab_size, set in every run. None: as the
      scale has it. A model grows with its task: d_vocab and n_ctx follow vocab_size and length;
    - `jobs`, `device`: as in `reproduce`.

    Raises `ConfigError` for an unknown figure, scale or field, for a field in which the figure's curves differ, and
    for numbers that a run refuses.
    """
    varied, at = _varied(experiment, scale, seeds, rate, steps, sizes)
    folder, kept = Folder(Path(scratch), varied.name, at), Folder(Path(stored), varied.name, at)
    if not varied.changed and (kept.path / "data.csv").exists():
        folder.publish(varied.experiment, kept.data())
    else:
        make([cast(Experiment, varied)], [folder], jobs, device, Path(runs))
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
    varied, at = _varied(experiment, scale, seeds, rate, steps, sizes)
    return varied.runs(at)


def _varied(
    experiment: str, scale: str, seeds: int | None, rate: float, steps: float, sizes: dict[str, Any]
) -> tuple["Varied", Scale]:
    """Return an experiment with other numbers, and the scale. Raises `ConfigError` for names and numbers it lacks."""
    chosen = EXPERIMENTS[choose("experiment", experiment, EXPERIMENTS)]
    at = cast(Scale, choose("scale", scale, SCALES))
    require(seeds is None or seeds >= 1, f"seeds is {seeds}, but must be at least 1.")
    require(rate > 0, f"rate is {rate}, but must be a positive factor.")
    require(steps > 0, f"steps is {steps}, but must be a positive factor.")
    given = {name: value for name, value in sizes.items() if value is not None}
    kind = VariedInTwoStages if isinstance(chosen, TwoStages) else Varied
    return kind(chosen, seeds, rate, steps, given), at


@dataclass(frozen=True)
class Varied:
    """An experiment with other numbers in its runs, as in `figure`. Its claims and its drawing stay its own."""

    experiment: Experiment
    seeds: int | None
    rate: float
    steps: float
    sizes: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name

    @property
    def changed(self) -> bool:
        """True if the runs are not all the experiment's own."""
        return self.seeds is not None or self.rate != 1 or self.steps != 1 or bool(self.sizes)

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the experiment's runs with these numbers."""
        return self._varied(self.experiment.runs(scale), self.seeds)

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather the experiment's table."""
        return self.experiment.gather(trained, scale)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the experiment's claims."""
        return self.experiment.claims(data, scale)

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the experiment's picture."""
        return self.experiment.draw(data, scale)

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the experiment's sentence."""
        return self.experiment.summary(data, scale)

    def _varied(self, planned: list[Planned], seeds: int | None) -> list[Planned]:
        for name in self.sizes:
            values = {_value(plan.config, name) for plan in planned}
            require(len(values) == 1, f"{name} cannot be set: it is what the curves of {self.name} differ in.")
        chosen = planned if seeds is None else _seeded(planned, seeds)
        return [replace(plan, config=self._config(plan.config)) for plan in chosen]

    def _config(self, config: RunConfig) -> RunConfig:
        changed = config.but(lr=config.lr * self.rate, steps=max(1, round(config.steps * self.steps)))
        for name, value in self.sizes.items():
            changed = _set(changed, name, value)
        return changed


class VariedInTwoStages(Varied):
    """An experiment whose second runs depend on its first: the number of seeds is that of the second."""

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the runs of the first stage with these numbers, but all their seeds."""
        return self._varied(self.experiment.runs(scale), None)

    def follow(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> list[Planned]:
        """Plan the runs of the second stage with these numbers, at the learning rates found in the first."""
        planned = cast(TwoStages, self.experiment).follow(trained, scale)
        return replace(self, rate=1.0)._varied(planned, self.seeds)


def _seeded(planned: list[Planned], seeds: int) -> list[Planned]:
    """Return the first seeds of every curve, and others after its last one where it has too few."""
    curves: dict[tuple[str, str], list[Planned]] = {}
    for plan in planned:
        curves.setdefault((plan.curve, plan.config.but(seed=0).digest), []).append(plan)  # digests ignore names
    chosen = []
    for plans in curves.values():
        last = plans[-1]
        first, used = last.config.seed + 1, last.config.name.removesuffix(str(last.config.seed))
        more = (last.config.but(seed=seed, name=f"{used}{seed}") for seed in range(first, first + seeds - len(plans)))
        chosen += [*plans[:seeds], *(replace(last, config=config) for config in more)]
    return chosen


_OF_TASK = {"vocab_size": "d_vocab", "length": "n_ctx"}


def _place(config: RunConfig, name: str) -> str:
    """Return the part of a config that has a field: "task", "model", or "" for the run itself."""
    parts = {"": RunConfig, "model": ModelConfig, "task": type(config.task)}
    known = {field.name: part for part, of in parts.items() for field in fields(of)}
    return known[choose("field", name, known.keys() - {"task", "model", "name", "seed", *_OF_TASK.values()})]


def _value(config: RunConfig, name: str) -> Any:
    place = _place(config, name)
    return getattr(getattr(config, place) if place else config, name)


def _set(config: RunConfig, name: str, value: Any) -> RunConfig:
    place = _place(config, name)
    if place == "task":
        model = config.model.but(**{_OF_TASK[name]: value}) if name in _OF_TASK else config.model
        return config.but(task=replace(config.task, **{name: value}), model=model)  # type: ignore[type-var]
    return config.but(**{place: getattr(config, place).but(**{name: value})} if place else {name: value})
