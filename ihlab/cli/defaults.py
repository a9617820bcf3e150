"""The options of `ihlab train`. Their defaults are those of `RunConfig()`. Setting one does not change the others."""

from collections.abc import Sequence
from dataclasses import MISSING, field, fields
from typing import Annotated, Any

import tyro

from ihlab.model.config import ModelConfig
from ihlab.training.clamp import Clamp
from ihlab.training.config import DEFAULT_MODEL, DEFAULT_TASK, RunConfig
from tasks import TASKS, InductionTask
from tasks.config import config


def run_options(kind: str, args: Sequence[str]) -> type[RunConfig]:
    """Return a `RunConfig` with the fields of that task and of the model as command-line options.

    The model's d_vocab and n_ctx default to the vocabulary and length of the task in `args`.
    """
    task_type, defaults = TASKS[kind], dict(DEFAULT_MODEL)
    if task_type is InductionTask:
        task_type = _with_defaults(InductionTask, DEFAULT_TASK)
    task = _task(kind, task_type, args)
    if task is not None:
        defaults |= {"d_vocab": task.vocab_size, "n_ctx": task.length}
    model_type = _with_defaults(ModelConfig, defaults)

    @config
    class Options(RunConfig):
        task: Annotated[task_type, tyro.conf.arg(help=_first_line(task_type))] = field()  # type: ignore[valid-type]
        model: Annotated[model_type, tyro.conf.arg(help=_first_line(ModelConfig))] = field()  # type: ignore[valid-type]
        clamped: tyro.conf.Suppress[tuple[Clamp, ...]] = ()

    Options.__name__ = RunConfig.__name__  # errors name the class
    return Options


def to_run(options: RunConfig) -> RunConfig:
    """Return the plain `RunConfig` of parsed options."""
    task, model = (
        _copied(options.task, TASKS[options.task.kind]),
        _copied(options.model, ModelConfig),
    )
    return RunConfig(**vars(options) | {"task": task, "model": model})


def _copied(value: Any, cls: Any) -> Any:
    """Return a config of type `cls` with the fields of `value`, an instance of a subclass."""
    return cls(**{known.name: getattr(value, known.name) for known in fields(cls)})


def _with_defaults(cls: Any, defaults: dict[str, Any]) -> Any:
    """Return a subclass of a config with other defaults. An instance would fix values that depend on other fields."""
    hints = {known.name: known.type for known in fields(cls) if known.name in defaults}
    body = {
        "__annotations__": hints,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        **defaults,
    }
    return config(type(cls.__name__, (cls,), body))


def _first_line(cls: Any) -> str:
    return str(cls.__doc__).partition("\n")[0]


def _task(kind: str, task_type: Any, args: Sequence[str]) -> Any:
    """Return the task in the arguments; None if they ask for help on a task with required fields."""
    rest = [arg for arg in args if arg not in ("-h", "--help")]
    needed = any(
        known.default is MISSING and known.default_factory is MISSING for known in fields(task_type)
    )
    if len(rest) < len(args) and needed:
        return None

    def read(task: task_type) -> Any:
        return task

    return tyro.cli(read, prog=f"ihlab train {kind}", args=rest, return_unknown_args=True)[0]
