"""A study that is a grid: a base run, and axes along which its runs differ."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from ihlab.study.ask import Cell
from ihlab.training.config import RunConfig

OF_RUN = {field.name for field in fields(RunConfig)}


def cells(**axes: Any) -> list[Cell]:
    """Return a cell for every combination of the axes' labels."""
    return [dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values())]


@dataclass(frozen=True)
class Grid:
    """The configs of a study's cells: a base run, changed along axes.

    `axes`: the labels of each axis, and what each changes: fields of the run, of its task or of its
    model. A model follows its task in d_vocab and n_ctx.
    """

    run: RunConfig
    axes: Mapping[str, Mapping[Any, Mapping[str, Any]]]

    @property
    def cells(self) -> list[Cell]:
        """A cell for every combination of labels."""
        return cells(**self.axes)

    def __call__(self, cell: Cell) -> RunConfig:
        """Return the config of a cell."""
        run = self.run
        for axis, labels in self.axes.items():
            run = changed(run, labels[cell[axis]])
        return run


def changed(run: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return a run with other values of fields, which may be its own, its task's or its model's."""
    of_run: dict[str, Any] = {}
    of_task: dict[str, Any] = {}
    of_model: dict[str, Any] = {}
    for name, value in values.items():
        if name in OF_RUN:
            of_run[name] = value
        elif hasattr(run.task, name):
            of_task[name] = value
        else:
            of_model[name] = value
    if of_task:
        task: Any = replace(run.task, **of_task)  # type: ignore[type-var]
        of_model = {"d_vocab": task.vocab_size, "n_ctx": task.length, **of_model}
        of_run["task"] = task
    return run.replace(model=run.model.replace(**of_model), **of_run)
