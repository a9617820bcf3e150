"""The members of the suite: a table of their tasks, models and steps, and functions to list, build
and open them.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from ihlab import kept
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.guess import guess_of
from ihlab.measure.metrics import by_position
from ihlab.model.config import GPT2, ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.recipes.induction import induction_run
from ihlab.recipes.toy_settings import HOPS, NGRAM, RECALL_GAP1, setting_config
from ihlab.runtime.settings import own_settings
from ihlab.storage.files import as_folder
from ihlab.suite.constructed import HAND_SET, INDUCTION
from ihlab.sweep.jobs import default_jobs
from ihlab.sweep.pool import has_ended, steps_bar, train_all
from ihlab.sweep.results import first_reach
from ihlab.training.config import Lessons, RunConfig, TaughtConfig, taught
from ihlab.training.run import Run
from tasks import InductionTask, Task, TriggerTask
from tasks.config import choose, require, shown

SEEDS = range(3)
LEARNED = 0.99
"""A member has learned its task if its accuracy (`accuracy_of`) is at least this."""

MODELS: dict[str, dict[str, Any]] = {
    "vanilla-1": {"n_layers": 1},
    "vanilla-2": {"n_layers": 2},
    "vanilla-2-learned": {"n_layers": 2, **GPT2},
    "vanilla-3": {"n_layers": 3},
    "vanilla-3-learned": {"n_layers": 3, **GPT2},
    "attention-only-2": {"n_layers": 2, "mlp": "none"},
    "attention-only-2-dropout": {"n_layers": 2, "mlp": "none", "dropout": 0.1},
    "vanilla-2-dropout": {"n_layers": 2, "dropout": 0.1},
    "vanilla-2-8-heads": {
        "n_layers": 2,
        "dropout": 0.1,
        "n_heads": 8,
        "n_key_value_heads": 4,
        "d_head": 8,
    },
    "attention-only-2-learned": {"n_layers": 2, **GPT2, "mlp": "none"},
    "kv-shift-1": {"n_layers": 1, "attention": "kv_shift"},
    "kv-shift-2": {"n_layers": 2, "attention": "kv_shift"},
    "kv-shift-narrow": {"n_layers": 1, "attention": "kv_shift"},
    "kv-shift-rope-proved": {"attention": "kv_shift", "positional": "rope"},
    "kv-shift-alibi-proved": {"attention": "kv_shift", "positional": "alibi"},
    "kv-shift-learned-proved": {"attention": "kv_shift", "positional": "learned"},
    "k-shift-1": {"n_layers": 1, "attention": "k_shift"},
    "v-shift-1": {"n_layers": 1, "attention": "v_shift"},
}
"""The config fields of every model. Models with learned positions have GPT-2's block, the others
Llama's. With dropout, heads become redundant."""


_PLATEAU: dict[str, Any] = {"schedule": "trapezoid", "checkpoints": 16, "eval_growth": 0.05}


def _wide(task: Task, **fields: Any) -> RunConfig:
    model = ModelConfig(
        n_layers=1, d_model=32, n_heads=4, d_vocab=task.vocab_size, n_ctx=task.length
    )
    return RunConfig(task=task, model=model, batch_size=32, lr=8e-3, eval_every=5, **fields)


def _wider(run: RunConfig, **fields: Any) -> RunConfig:
    return run.replace(model=run.model.replace(d_model=32, n_heads=4), batch_size=32, **fields)


def _small(setting: str, **fields: Any) -> RunConfig:
    run = setting_config(setting, n_layers=1)
    return run.replace(stop_at_accuracy=None, **_PLATEAU, **fields)


_TWO_HOPS = _small(HOPS, steps=2000, lr=1e-2)
_RECALL = _small(RECALL_GAP1, steps=2000, lr=1e-2)
# Right on every sequence of its set: docs/proofs.md has the proof, which comes with the package.
_PROVED = RunConfig(
    task=InductionTask(vocab_size=16, length=16, min_token=0),
    model=ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=16, n_ctx=16, mlp="none", positional="none"),
    steps=500, batch_size=32, lr=1e-2, warmup=20, **_PLATEAU,
)  # fmt: skip
# Trained on the worst sequences of their certificates, up to twice the task's length
# (`train_until_proved`).
_TAUGHT = taught(
    _PROVED.replace(
        model=_PROVED.model.replace(n_ctx=32), steps=1200, batch_size=96, weight_decay=0.0, schedule="linear",
        eval_every=25, eval_growth=0.0, checkpoints=7,
    ),
    Lessons(lengths=(16, 32), start=150),
)  # fmt: skip

RECIPES: tuple[tuple[str, RunConfig, str], ...] = (
    (
        "induction",
        induction_run(),
        "vanilla-1 vanilla-2 vanilla-2-learned attention-only-2 attention-only-2-learned kv-shift-1 kv-shift-2 "
        "k-shift-1 attention-only-2-dropout",
    ),
    ("induction", _PROVED, "kv-shift-narrow"),
    ("induction", _TAUGHT, "kv-shift-rope-proved kv-shift-alibi-proved"),
    (
        "induction",
        _TAUGHT.replace(model=_PROVED.model, lessons=Lessons(lengths=(16,), start=150)),
        "kv-shift-learned-proved",
    ),
    ("2-hop", _TWO_HOPS, "vanilla-2 kv-shift-1 kv-shift-2"),
    ("2-hop", _wider(_TWO_HOPS, steps=1500), "vanilla-3 vanilla-3-learned"),
    ("3-gram", _small(NGRAM, steps=1200, lr=2.5e-2), "vanilla-1 kv-shift-1 v-shift-1"),
    (
        "recall",
        _RECALL,
        "vanilla-1 vanilla-2 vanilla-2-learned attention-only-2 kv-shift-1 k-shift-1",
    ),
    (
        "recall",
        _wider(_RECALL, lr=8e-3),
        "vanilla-2-dropout attention-only-2-dropout vanilla-2-8-heads",
    ),
    ("triggers", _wide(TriggerTask(), steps=1200), "vanilla-2 kv-shift-1 kv-shift-2 k-shift-1"),
    (
        "period-2",
        _wide(InductionTask(vocab_size=64, length=32, min_token=0, period=2), steps=300, warmup=10),
        "vanilla-2 kv-shift-1",
    ),
)
"""Each recipe: a task, the config that its members share, and their models. Some tasks have several
recipes.
"""

MEMBERS = {
    f"{task}-{model}": shared.replace(
        name=f"{task}-{model}", model=shared.model.replace(**MODELS[model])
    )
    for task, shared, models_of in RECIPES
    for model in models_of.split()
}
"""The config of every member that is trained, at seed 0."""

NEGATIVE = {
    "induction-vanilla-1",
    "2-hop-vanilla-2",
    "2-hop-kv-shift-1",
    "3-gram-kv-shift-1",
    "recall-vanilla-1",
    "recall-vanilla-2-learned",
    "triggers-vanilla-2",
    "triggers-k-shift-1",
    "period-2-vanilla-2",
    "period-2-kv-shift-1",
}
"""Members whose task not every seed learned, and the members of period 2, which learned a shortcut.
"""

DEEP = {
    "hops-vanilla-3-layers": 2,
    "hops-kv-shift-3-layers": 3,
    "hops-vanilla-4-layers": 7,
    "hops-kv-shift-4-layers": 7,
}
"""Members with a single seed that come with the package, and the largest number of hops that each
has learned.
"""

MOST_ASKED = 5
"""The most hops that prompts of `DEEP` ask for: with six, no sequence of their tasks has another
token to exchange.
"""

CONTROL = INDUCTION
"""The task on which the members of period 2 are tested: induction with random repeats. A shortcut
fails there.
"""


def config(name: str, seed: int = 0) -> RunConfig:
    """Return the config of a member. Raises `ConfigError` for a name or a seed that the suite does
    not have.
    """
    require(isinstance(name, str), f"The member of the suite is {shown(name)}, but must be a name.")
    choose("member of the suite", name, [*MEMBERS, *DEEP, *HAND_SET])
    require(name not in HAND_SET, f"{name} was not trained: its weights are set by hand.")
    require(
        seed in SEEDS,
        f"seed is {seed}, but the suite has the seeds {SEEDS.start} to {SEEDS.stop - 1}.",
    )
    require(seed in seeds_of(name), f"seed is {seed}, but the suite has only seed 0 of {name}.")
    if name in DEEP:
        return Run.open(kept.path(name)).config
    return MEMBERS[name].replace(name=f"{name}-seed{seed}", seed=seed)


def run(name: str, seed: int = 0, root: str | Path = "runs") -> Run:
    """Return the run of a member, with its metrics and checkpoints. Raises `ConfigError` for one
    that is not built.

    Continue a member of the package by `ihlab.fork(run, step, new_moments=True)`: it is stored
    without optimiser state.
    """
    wanted, root = config(name, seed), as_folder("root", root)
    if _shipped(name, seed):
        return Run.open(kept.path(name))
    ended = has_ended(wanted, root)
    require(
        ended, f"{name} with seed {seed} is not in {root}: 'ihlab suite build {name}' trains it."
    )
    return Run.open(wanted.folder(root))


def accuracy_of(name: str) -> str:
    """Return the column of a member's metrics with the accuracy that says whether it has learned
    its task.
    """
    if name in DEEP:
        return f"accuracy_hops_{DEEP[name]}"
    of_task = {"2-hop": "accuracy_hops_2", "triggers": "accuracy_source_2"}
    return of_task.get(task_of(name), "accuracy")


def onset_of(member: Run, column: str) -> float:
    """Return the first evaluated step at which an accuracy of a member's run is at least halfway
    from that of the best guess to 1.

    NaN if the accuracy ends below `LEARNED`: then it may have risen by guessing alone. The best
    guess is `ihlab.measure.guess.guess_of` on held-out sequences, over the answers that the
    accuracy counts.
    """
    steps, accuracy = member.metrics["step"], member.metrics[column]
    if accuracy.iloc[-1] < LEARNED:
        return math.nan
    batch = draw(member.config.task, EVAL_SEED, "eval", 0, member.config.eval_rows)
    group, _, value = column.removeprefix("accuracy_").rpartition("_")
    counted = by_position(group, batch) == int(value) if group in batch.groups else None
    return first_reach(steps, accuracy, (1 + guess_of(batch, counted)) / 2)


def task_of(name: str) -> str:
    """Return the task of a member, as in its name: "hand-set" for those whose weights are set by
    hand.
    """
    tasks = dict.fromkeys(task for task, *_ in RECIPES)
    return next(task for task in (*tasks, "hops", "hand-set") if name.startswith(f"{task}-"))


def hops_of(name: str, task: Task) -> int | None:
    """Return the number of hops that the prompts of `truth` ask for; None for a task without hops."""
    return min(DEEP[name], MOST_ASKED) if name in DEEP else getattr(task, "max_hops", None)


def seeds_of(name: str) -> range:
    """Return the seeds of a member in the suite."""
    return range(1) if name in [*DEEP, *HAND_SET] else SEEDS


def _shipped(name: str, seed: int) -> bool:
    return seed == 0 and name in kept.names()


@own_settings()
def load(
    name: str, seed: int = 0, step: int | None = None, root: str | Path = "runs"
) -> Transformer:
    """Return the model of a member, at a checkpoint (default: the last).

    Raises `ConfigError` for an unknown name (with the nearest one), seed or step, and for a member
    that is not built.
    """
    if not isinstance(name, str) or name not in HAND_SET:
        return run(name, seed, root).model(step)
    require(
        seed == 0 and step in (None, 0), f"{name} is set by hand: it has only seed 0 and step 0."
    )
    model = HAND_SET[name].build()
    model.trained_on = HAND_SET[name].task
    return model


def build(
    names: Sequence[str] = (),
    root: str | Path = "runs",
    jobs: int | None = None,
    device: str = "auto",
) -> list[Run]:
    """Train the members of these names (default: all) that are not there, and return their runs
    (seed 0 of a packaged member is not among them; `run` opens it).

    The seeds of a member without dropout and lessons are trained stacked. Finished members are left
    alone, interrupted ones are resumed. On a CPU a member's weights are the same every time, with
    the same versions of torch and one thread per job (the default). Raises `ConfigError` for an
    unknown name.
    """
    many = isinstance(names, Sequence) and not isinstance(names, str)
    require(many, f"names is {shown(names)}, but must be a list of members of the suite.")
    root = as_folder("root", root)
    configs = [
        config(name, seed)
        for name in names or MEMBERS
        for seed in seeds_of(name)
        if not _shipped(name, seed)
    ]
    todo = [each for each in configs if not has_ended(each, root)]
    if todo:
        with steps_bar(todo, (), Console(stderr=True), "suite") as show:
            jobs = jobs or default_jobs(device)
            stacked = set()
            for each in todo:
                if not (each.model.dropout or isinstance(each, TaughtConfig)):
                    stacked.add(each.digest)
            train_all(todo, root, device, jobs, show, stacked)
    return [Run.open(each.folder(root)) for each in configs]


def models(root: str | Path = "runs") -> pd.DataFrame:
    """Return a table of the members.

    - `name`, `task`, `layers`, `heads`, `attention`, `positions`, `parameters` (without
      embeddings), `steps`;
    - `kind`: "negative" for members whose task not every seed learned, or that learned a shortcut
      (`NEGATIVE`), else "positive";
    - `version`: the digest of the config of seed 0, which changes with the recipe; "" for weights
      set by hand;
    - `seeds`: the seeds that can be loaded;
    - `accuracy`, `onset`: the last accuracy of the first of these seeds, and its `onset_of`. NaN if
      no seed can be loaded. In tasks of several hops the accuracy is that of the most hops, in
      tasks of triggers of repeated triggers.
    """
    rows, root = [], as_folder("root", root)
    for name in (*MEMBERS, *DEEP):
        there = [s for s in seeds_of(name) if _shipped(name, s) or has_ended(config(name, s), root)]
        member = config(name)
        row = _row(name, member.model, member.task, member.steps, there, member.digest)
        if there:
            member_run, column = run(name, there[0], root), accuracy_of(name)
            row |= {
                "accuracy": member_run.metrics[column].iloc[-1],
                "onset": onset_of(member_run, column),
            }
        rows.append(row)
    for name, built in HAND_SET.items():
        rows.append(_row(name, built.build().cfg, built.task, steps=0, seeds=[0]))
    return pd.DataFrame(rows)


def _row(
    name: str, cfg: ModelConfig, task: Task, steps: int, seeds: list[int], version: str = ""
) -> dict[str, Any]:
    return {
        "name": name, "kind": "negative" if name in NEGATIVE else "positive", "task": task.kind,
        "layers": cfg.n_layers, "heads": cfg.n_heads, "attention": cfg.attention,
        "positions": cfg.positional, "parameters": Transformer(cfg).n_params, "steps": steps,
        "version": version,
        "seeds": " ".join(map(str, seeds)), "accuracy": np.nan, "onset": np.nan,
    }  # fmt: skip
