"""What `ihlab train` adds to the options it was given, so that with none it trains a model that learns."""

from collections.abc import Sequence
from typing import Any

import tyro

from tasks import TASKS, InductionTask
from tasks.config import config

TASK = {"--task.vocab-size": "128", "--task.length": "32"}
"""The induction task where nothing is said of it: Figure 1's on a laptop."""
MODEL = {"--model.n-layers": "1", "--model.d-model": "64", "--model.n-heads": "4", "--model.attention": "kv_shift"}
"""The model where nothing is said of it: a layer of KV shifting."""
SIZES = ("--model.n-layers", "--model.d-model", "--model.n-heads")
"""What a model cannot be without: taken from `MODEL` where it is left out."""
TRAINING = {"--steps": "300", "--lr": "8e-3", "--warmup": "50"}
"""Its training, which ends above an accuracy of .99 in well under a minute of one core."""


def with_defaults(kind: str, args: Sequence[str]) -> list[str]:
    """Return the options of `ihlab train <kind>` with those that were left out and follow from the others.

    A model's vocabulary and context are the task's. Where nothing is said of the model it is `MODEL`, trained as
    `TRAINING` says, and of one of which something is said the `SIZES` that are left out are those of `MODEL`. An
    induction task of which nothing is said is `TASK`.
    """
    named = {arg.partition("=")[0].replace("_", "-") for arg in args if arg.startswith("--")}
    if {"-h", "--help"} & set(args):
        return list(args)
    added: dict[str, str] = {}
    if kind == InductionTask.kind and not any(name.startswith("--task.") for name in named):
        added |= TASK
    if any(name.startswith("--model.") for name in named):
        added |= {name: MODEL[name] for name in SIZES if name not in named}
    else:
        added |= {**MODEL, **{name: value for name, value in TRAINING.items() if name not in named}}
    given = [*args, *_flat(added)]
    if {"--model.d-vocab", "--model.n-ctx"} <= named:
        return given
    task = _task(kind, given)
    sizes = {"--model.d-vocab": str(task.vocab_size), "--model.n-ctx": str(task.length)}
    return [*given, *_flat({name: size for name, size in sizes.items() if name not in named})]


def _flat(options: dict[str, str]) -> list[str]:
    return [part for option in options.items() for part in option]


def _task(kind: str, args: Sequence[str]) -> Any:
    """Return the task that the options ask for."""
    task_type = TASKS[kind]

    @config
    class TaskOnly:
        """The task of a run."""

        task: task_type  # type: ignore[valid-type]

    asked, _ = tyro.cli(TaskOnly, prog=f"ihlab train {kind}", args=args, return_unknown_args=True)
    return asked.task
