"""The members of the suite: a table of tasks, models and steps; list, build and open them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console

from ihlab import kept
from ihlab.files import as_folder
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.guess import guess_of
from ihlab.measure.metrics import by_position
from ihlab.model.config import GPT2, ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.recipes.induction import induction_run
from ihlab.recipes.toy_settings import HOPS, NGRAM, RECALL_GAP1, setting_config
from ihlab.settings import own_settings
from ihlab.sweep.jobs import default_jobs
from ihlab.sweep.pool import has_ended, steps_bar, train_all
from ihlab.sweep.results import first_reach
from ihlab.theory.constructions import kv_shift_induction_head, two_layer_induction_head
from ihlab.training.config import RunConfig
from ihlab.training.run import Run
from tasks import IGNORE, InductionTask, Task, TriggerTask
from tasks.config import choose, require, shown

SEEDS = range(3)
LEARNED = 0.9
"""The accuracy from which on a member has learned its task."""

MODELS: dict[str, dict[str, Any]] = {
    "vanilla-1": {"n_layers": 1},
    "vanilla-2": {"n_layers": 2},
    "vanilla-2-learned": {"n_layers": 2, **GPT2},
    "attention-only-2": {"n_layers": 2, "mlp": "none"},
    "attention-only-2-learned": {"n_layers": 2, **GPT2, "mlp": "none"},
    "kv-shift-1": {"n_layers": 1, "attention": "kv_shift"},
    "kv-shift-2": {"n_layers": 2, "attention": "kv_shift"},
    "k-shift-1": {"n_layers": 1, "attention": "k_shift"},
    "v-shift-1": {"n_layers": 1, "attention": "v_shift"},
}
"""Fields of every model. Those with learned positions have GPT-2's block, the others Llama's."""


def _wide(task: Task, **fields: Any) -> RunConfig:
    model = ModelConfig(n_layers=1, d_model=32, n_heads=4, d_vocab=task.vocab_size, n_ctx=task.length)
    return RunConfig(task=task, model=model, batch_size=32, lr=8e-3, eval_every=5, **fields)


def _small(setting: str, **fields: Any) -> RunConfig:
    run = setting_config(setting, "laptop", n_layers=1)
    return run.replace(schedule="trapezoid", eval_growth=0.05, checkpoints=16, stop_at_accuracy=None, **fields)


TASKS: dict[str, tuple[RunConfig, str]] = {
    "induction": (
        induction_run("laptop"),
        "vanilla-1 vanilla-2 vanilla-2-learned attention-only-2 attention-only-2-learned kv-shift-1 kv-shift-2 "
        "k-shift-1",
    ),
    "2-hop": (
        _small(HOPS, steps=2000, lr=1e-2),
        "vanilla-1 vanilla-2 vanilla-2-learned attention-only-2 kv-shift-1 kv-shift-2",
    ),
    "3-gram": (_small(NGRAM, steps=1200, lr=2.5e-2), "vanilla-1 vanilla-2 kv-shift-1 k-shift-1 v-shift-1"),
    "recall": (
        _small(RECALL_GAP1, steps=2000, lr=1e-2),
        "vanilla-1 vanilla-2 vanilla-2-learned attention-only-2 kv-shift-1 k-shift-1",
    ),
    "triggers": (
        _wide(TriggerTask(), steps=1200),
        "vanilla-1 vanilla-2 vanilla-2-learned attention-only-2 kv-shift-1 kv-shift-2 k-shift-1",
    ),
    "period-2": (
        _wide(InductionTask(vocab_size=64, length=32, min_token=0, period=2), steps=300, warmup=10),
        "vanilla-2 kv-shift-1",
    ),
}
"""The config that the members of a task share, and their models."""

MEMBERS = {
    f"{task}-{model}": shared.replace(name=f"{task}-{model}", model=shared.model.replace(**MODELS[model]))
    for task, (shared, models_of) in TASKS.items()
    for model in models_of.split()
}
"""The config of every member that is trained, at seed 0."""

CONTROL = InductionTask(vocab_size=64, length=32, min_token=0)
"""The task on which the members of period 2 are tested: induction with random repeats. A shortcut fails there."""

_HAND_SET = {"sigma": 0.05, "slope": 0.01, "mask": "strict"}
HAND_SET: dict[str, Callable[[], Transformer]] = {
    "hand-set-two-layers": lambda: two_layer_induction_head(torch.eye(64), 32, first_slope=20.0, **_HAND_SET),  # type: ignore[arg-type]
    "hand-set-kv-shift": lambda: kv_shift_induction_head(torch.eye(64), 32, **_HAND_SET),  # type: ignore[arg-type]
}
"""Members whose weights are set by hand (`ihlab.theory.constructions`). They do induction on `CONTROL`."""


def config(name: str, seed: int = 0) -> RunConfig:
    """Return the config of a member. Raises `ConfigError` for a name or a seed that the suite does not have."""
    require(isinstance(name, str), f"The member of the suite is {shown(name)}, but must be a name.")
    choose("member of the suite", name, [*MEMBERS, *HAND_SET])
    require(name in MEMBERS, f"{name} was not trained: its weights are set by hand.")
    require(seed in SEEDS, f"seed is {seed}, but the suite has the seeds {SEEDS.start} to {SEEDS.stop - 1}.")
    return MEMBERS[name].replace(name=f"{name}-seed{seed}", seed=seed)


def run(name: str, seed: int = 0, root: str | Path = "runs") -> Run:
    """Return the run of a member, with its metrics and checkpoints. Raises `ConfigError` for one that is not built.

    Continue one that comes with the package by `ihlab.fork(run, step, new_moments=True)`: it has no optimiser states.
    """
    wanted, root = config(name, seed), as_folder("root", root)
    if _shipped(name, seed):
        return Run.open(kept.path(name))
    ended = has_ended(wanted, root)
    require(ended, f"{name} with seed {seed} is not in {root}: 'ihlab suite build {name}' trains it.")
    return Run.open(wanted.folder(root))


def accuracy_of(name: str) -> str:
    """Return the column of a member's metrics that says whether it does what its task is for."""
    return {"2-hop": "accuracy_hops_2", "triggers": "accuracy_source_2"}.get(task_of(name), "accuracy")


def onset_of(member: Run, column: str) -> float:
    """Return the first step at which an accuracy of a member's run is halfway from the best guess to 1.

    NaN if it ends below `LEARNED`: what rose may have been the guess. The guess is `ihlab.measure.guess.guess_of` of
    held-out sequences, at the answers that the accuracy counts.
    """
    steps, accuracy = member.metrics["step"], member.metrics[column]
    batch = draw(member.config.task, EVAL_SEED, "eval", 0, member.config.eval_rows)
    group, _, value = column.removeprefix("accuracy_").rpartition("_")
    if group in batch.groups:
        counted = by_position(group, batch) == int(value)
        batch = replace(batch, answers=np.where(counted, batch.answers, IGNORE))
    return first_reach(steps, accuracy, (1 + guess_of(batch)) / 2) if accuracy.iloc[-1] >= LEARNED else math.nan


def task_of(name: str) -> str:
    """Return the task of a member, as in its name: "hand-set" for those whose weights are set by hand."""
    return next(task for task in (*TASKS, "hand-set") if name.startswith(f"{task}-"))


def _shipped(name: str, seed: int) -> bool:
    return seed == 0 and name in kept.names()


@own_settings()
def load(name: str, seed: int = 0, step: int | None = None, root: str | Path = "runs") -> Transformer:
    """Return the model of a member, at a checkpoint (default: the last).

    Raises `ConfigError` for an unknown name (with the nearest one), seed or step, and for a member that is not built.
    """
    if not isinstance(name, str) or name not in HAND_SET:
        return run(name, seed, root).model(step)
    require(seed == 0 and step in (None, 0), f"{name} is set by hand: it has only seed 0 and step 0.")
    model = HAND_SET[name]()
    model.trained_on = CONTROL
    return model


def build(
    names: Sequence[str] = (), root: str | Path = "runs", jobs: int | None = None, device: str = "auto"
) -> list[Run]:
    """Train the members of these names (default: all) that are not there, and return their runs.

    The seeds of a member are trained stacked. Finished members are left alone, interrupted ones are resumed. On a CPU a
    member's weights are the same every time, with the same versions of torch and one thread per job (the default).
    Raises `ConfigError` for an unknown name.
    """
    many = isinstance(names, Sequence) and not isinstance(names, str)
    require(many, f"names is {shown(names)}, but must be a list of members of the suite.")
    root = as_folder("root", root)
    configs = [config(name, seed) for name in names or MEMBERS for seed in SEEDS if not _shipped(name, seed)]
    todo = [each for each in configs if not has_ended(each, root)]
    if todo:
        with steps_bar(todo, (), Console(stderr=True), "suite") as show:
            jobs = jobs or default_jobs(device)
            train_all(todo, root, device, jobs, show, {each.digest for each in todo})
    return [Run.open(each.folder(root)) for each in configs]


def models(root: str | Path = "runs") -> pd.DataFrame:
    """Return a table of the members.

    - `name`, `task`, `layers`, `heads`, `attention`, `positions`, `parameters` (without embeddings), `steps`;
    - `seeds`: the seeds that can be loaded;
    - `accuracy`, `onset`: of the first of these: the last accuracy, and its `onset_of`. NaN if no seed can be loaded.
      The accuracy is that of two hops or of repeated triggers in those tasks.
    """
    rows, root = [], as_folder("root", root)
    for name, member in MEMBERS.items():
        there = [s for s in SEEDS if _shipped(name, s) or has_ended(config(name, s), root)]
        row = _row(name, member.model, task=member.task.kind, steps=member.steps, seeds=there)
        if there:
            member_run, column = run(name, there[0], root), accuracy_of(name)
            row |= {"accuracy": member_run.metrics[column].iloc[-1], "onset": onset_of(member_run, column)}
        rows.append(row)
    rows += [
        _row(name, build_model().cfg, task=CONTROL.kind, steps=0, seeds=[0]) for name, build_model in HAND_SET.items()
    ]
    return pd.DataFrame(rows)


def _row(name: str, cfg: ModelConfig, task: str, steps: int, seeds: list[int]) -> dict[str, Any]:
    return {
        "name": name, "task": task, "layers": cfg.n_layers, "heads": cfg.n_heads, "attention": cfg.attention,
        "positions": cfg.positional, "parameters": Transformer(cfg).n_params, "steps": steps,
        "seeds": " ".join(map(str, seeds)), "accuracy": np.nan, "onset": np.nan,
    }  # fmt: skip
