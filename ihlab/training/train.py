"""Entry points of training: `train(config)` returns one finished run, `train_ensemble(configs)`
several.
"""

import warnings
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import overload

import torch

from ihlab.runtime.settings import own_settings
from ihlab.training.config import RunConfig, TaughtConfig
from ihlab.training.device import pick_device
from ihlab.training.ensemble import best_stack, check_members, seeds, stacks
from ihlab.training.interrupt import deferred_interrupt
from ihlab.training.lessons import Find
from ihlab.training.loop import Training, learning_rate
from ihlab.training.memory import require_fits
from ihlab.training.progress import Report, progress
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback, TrainingDivergedError, require_callback
from tasks.config import require, shown


@overload
def train(
    config: RunConfig,
    root: str | Path = ...,
    device: str = ...,
    report: Report | None = ...,
    members: None = None,
    callback: Callback | None = ...,
    find: Find | None = ...,
) -> Run: ...


@overload
def train(
    config: RunConfig,
    root: str | Path = ...,
    device: str = ...,
    report: Report | None = ...,
    *,
    members: int,
    callback: Callback | None = ...,
) -> list[Run]: ...


@own_settings()
def train(
    config: RunConfig,
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
    members: int | None = None,
    callback: Callback | None = None,
    find: Find | None = None,
) -> Run | list[Run]:
    """Train the run that `config` describes, in its folder under `root`, and return it.

    A finished run is returned unchanged, even if its task's data has changed since. An interrupted
    run is resumed from its last checkpoint. On the CPU, with the same number of threads, it then
    ends bit for bit as if it had not been interrupted (compiled: to rounding).

    `device` is a torch device, or "auto": a GPU if there is one. `report` is called with progress;
    by default progress is shown on standard error, or in the notebook (`ihlab.training.progress`).
    With `members`, `train_ensemble` trains that many runs with the seeds `config.seed`,
    `config.seed` + 1, ..., and they are returned as a list.

    `callback` is called after each evaluation with a dict: "run", the name of the run's folder, and
    the new row of `run.metrics` ("step", "train_loss", "eval_loss", "accuracy", ...). `print` and
    `wandb.log` both work. A resumed run does not report earlier evaluations again. If the callback
    raises, training ends; the next call resumes it.

    `find` finds the lessons of a `TaughtConfig`: `ihlab.certify.train_until_proved` gives it.

    Raises `TrainingDivergedError` when the loss stops being finite, `Interrupted` after Ctrl-C (at
    the end of the step, with everything saved), and `ConfigError` for a run that does not fit in
    memory, for a folder that another process has locked or that has another config, for an
    interrupted run whose task's data has changed (`Task`'s `provenance`), and under `torchrun`.
    Unless `report` is given, warns if the warmup is longer than the run, and if there is a callback
    but an equal run, of any name, had ended before.
    """
    require(
        isinstance(config, RunConfig), f"The config is {shown(config)}, but must be a RunConfig."
    )
    require_callback(callback)
    require(
        isinstance(config, TaughtConfig) == (find is not None)
        and (find is None or members is None),
        "The config has lessons: train it with ihlab.certify.train_until_proved.",
    )
    if members is not None:
        if report is None:
            _warn_of_a_long_warmup(config)
        return train_ensemble(seeds(config, members), root, device, report, callback=callback)
    where = pick_device(device)
    [run] = _create([config], root, where)
    if run.done:
        _warn_of_ended([run], report, callback)
    else:
        if report is None:
            _warn_of_a_long_warmup(config)
        _train([run], where, report, callback, find)
    return run


def _warn_of_ended(runs: Sequence[Run], report: Report | None, callback: Callback | None) -> None:
    """Warn that the callback gets no evaluation of runs that had ended before."""
    if runs and callback is not None and report is None:
        others = "" if len(runs) == 1 else f" and {len(runs) - 1} more"
        warnings.warn(
            f"An equal run had ended before in {runs[0].folder}{others}: it is not trained, and its evaluations are "
            "not reported to the callback.",
            stacklevel=4,
        )


def _warn_of_a_long_warmup(config: RunConfig) -> None:
    if config.warmup > config.steps:
        reached = learning_rate(config, config.steps - 1)
        warnings.warn(
            f"RunConfig.warmup is {config.warmup}, but the run has {config.steps} steps: its learning rate rises to "
            f"{reached:.2g} and never to lr={config.lr:g}.",
            stacklevel=4,
        )


@own_settings()
def train_ensemble(
    configs: Sequence[RunConfig],
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
    stack: int | None = None,
    callback: Callback | None = None,
) -> list[Run]:
    """Train runs that differ only in the fields `FREE` as one stacked model; return them in the
    order given.

    Each member has its own weights, batches, gradient norm (for clipping), optimiser state, metrics
    and folder. Up to rounding it equals the run that `train` makes from its config: it has the same
    hash, and is resumed and forked the same way. In its `done.json`, `seconds` is the time of all
    members together, and `ensemble` is the number of members that were still stacked. With early
    stopping, once half of the members have ended, the others continue as a smaller stack. Finished
    members are not trained again. Interrupted ones are resumed at the last step for which all have
    a checkpoint. An attention of your own whose buffers depend on its seed cannot be stacked.

    A member whose loss stops being finite is left at its last checkpoint, with the step in
    `diverged.json` (`Run.diverged`), and the others continue; it is not retried, since it would
    diverge again.

    `stack` is the number of members in one stacked model; stacks are trained one after another. The
    default on a GPU is all members. On a CPU it is the largest number that still trains faster
    stacked: one, if a step has many positions. A stack of one is trained as by `train`. `root`,
    `device`, `report` and `callback` are as in `train`.

    Raises `ConfigError` for members that cannot be stacked (another field differs; dropout, whose
    random numbers differ in a stack; forks), for two equal configs, and under `torchrun`;
    `Interrupted` after Ctrl-C.
    """
    check_members(configs)
    require_callback(callback)
    require(stack is None or stack >= 1, f"stack is {stack}, but must be at least 1.")
    where = pick_device(device)
    most = min(stack or len(configs), len(configs))
    if stack is None:
        most = best_stack(configs[0], len(configs), where)
    runs = _create(configs, root, where, most)
    todo = [run for run in runs if not run.done and not run.diverged]
    _warn_of_ended([run for run in runs if run not in todo], report, callback)
    for group in stacks(todo, most):
        with suppress(TrainingDivergedError):  # recorded in the run's folder
            _train(group, where, report, callback)
    return runs


def _create(
    configs: Sequence[RunConfig], root: str | Path, device: torch.device, stack: int = 1
) -> list[Run]:
    """Return the configs' runs. Before any has a folder, check that `stack` of them fit in memory,
    or all are done.
    """
    if not all(Run(config.folder(root), config).done for config in configs):
        require_fits(configs[0], device, stack)
    return [Run.create(config, root) for config in configs]


@torch.enable_grad()
def _train(
    runs: Sequence[Run],
    device: torch.device,
    report: Report | None,
    callback: Callback | None,
    find: Find | None = None,
) -> None:
    """Train runs to their end under their locks, stacked if there are several."""
    shown_progress = progress(runs[0].config, len(runs)) if report is None else nullcontext(report)
    devices = [device] if device.type == "cuda" else []
    with (
        ExitStack() as locks,
        torch.random.fork_rng(devices),  # of dropout
        deferred_interrupt() as interrupted,
        shown_progress as reported,
    ):
        for run in runs:
            locks.enter_context(run.lock())
        left = [run for run in runs if not run.done]  # another process may have finished some
        resumed_from = None
        while left:
            training = Training(left, device, reported, callback, len(runs) > 1, resumed_from, find)
            training.finish(interrupted)
            resumed_from = training.resumed_from
            left = [run for run in left if not run.done and not run.diverged]
