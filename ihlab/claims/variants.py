"""Attention variants on tasks: the models, the settings, and runs at each variant's own learning rate.

A *cell* is a variant on a task. Each is trained as often as any other:

1. Tuning: every rate of the task's grid, on seeds that no claim uses.
2. The rate chosen by `fastest_rate`, on the seeds of the claims.

Runs end when they reach 90% accuracy, or after the setting's steps. Experiments share runs: a cell that two of them
show is trained once.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from ihlab.claims.experiment import Planned, Scale
from ihlab.claims.rates import ACCURACY, fastest_rate, steps_table
from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import InductionTask, MQARTask, MultiHopTask, NGramTask, Task

if TYPE_CHECKING:
    from ihlab.training.run import Run

VANILLA, KV, K, V = "vanilla", "KV shifting", "K only", "V only"
WINDOW3, WINDOW4 = "KV, window 3", "KV, window 4"
GATE, SUM1, CLIP, PROJECT = "KV gate", "KV, sum 1", "KV, clipped to 0-1", "KV, projected to 0-1"
QKV, INPUT_GATE = "QKV", "gate of the input"
RWKV, BEFORE_NORM, AFTER_NORM, ADDED = "RWKV shift", "stream, before norm", "stream, after norm", "stream, added"
CANON, MDHA = "Canon A, B, C, D", "MDHA"
MLA, MLA_KV, DIFFERENTIAL, SELECTIVE = "MLA", "MLA, one key, one value", "differential", "selective"

RANKS = (2, 4, 8, 16)
"""Ranks of the latent vector that are compared: from an eighth of the laptop's d_model to all of it."""
_LATENT = {MLA: "mla", MLA_KV: "mla_kv"}


def latent(name: str, rank: int) -> str:
    """Return the label of MLA, with or without shifts, at a rank."""
    return f"{name}, rank {rank}"


def canon(places: str) -> str:
    """Return the label of Canon layers at some places."""
    return f"Canon {', '.join(places)}"


_UNIFORM: dict[str, Any] = {"attention": "kv_shift", "shift_start": "uniform"}
VARIANTS: dict[str, dict[str, Any]] = {
    VANILLA: {},
    KV: {"attention": "kv_shift"},
    K: {"attention": "k_shift"},
    V: {"attention": "v_shift"},
    WINDOW3: {**_UNIFORM, "shift_window": 3},
    WINDOW4: {**_UNIFORM, "shift_window": 4},
    GATE: {"attention": "kv_gate"},
    SUM1: {"attention": "kv_sum1"},
    CLIP: {"attention": "kv_clip"},
    PROJECT: {"attention": "kv_project"},
    QKV: {"attention": "qkv_shift"},
    INPUT_GATE: {"attention": "input_gate"},
    RWKV: {"attention": "rwkv_shift"},
    BEFORE_NORM: {"stream_shift": "before_norm"},
    AFTER_NORM: {"stream_shift": "after_norm"},
    ADDED: {"stream_shift": "added"},
    CANON: {"canon": "ABCD"},
    MDHA: {"attention": "mdha"},
    MLA: {"attention": "mla"},
    MLA_KV: {"attention": "mla_kv"},
    **{latent(name, rank): {"attention": kind, "mla_rank": rank} for rank in RANKS for name, kind in _LATENT.items()},
    **{canon(place): {"canon": place} for place in "ABCD"},
    DIFFERENTIAL: {"attention": "differential"},
    SELECTIVE: {"attention": "selective"},
}
"""Fields of the model that make each variant, by its label."""

INDUCTION1, INDUCTION2, NO_POSITIONS2 = "induction, 1 layer", "induction, 2 layers", "induction, 2 layers, no positions"
NGRAM, HOPS, RECALL1, RECALL2 = (
    "3-grams, 1 layer",
    "2 hops, 2 layers",
    "recall, gap 1, 1 layer",
    "recall, gap 2, 1 layer",
)
NARROW = "induction, 1 layer, width 8"


@dataclass(frozen=True)
class Setting:
    """A task and the model that learns it: at the laptop's size, and at the one of `make test`."""

    task: Task
    small: Task
    model: dict[str, Any]
    steps: int
    rates: tuple[float, ...]
    accuracy: Literal["accuracy_first", "accuracy"] = "accuracy_first"
    """The column of the metrics that has to reach 90%: of the first answer in each row, or of all."""


# Each row begins with a token that says nothing (the hop token of multi-hop rows does): selective attention needs one.
_INDUCTION = InductionTask(vocab_size=65, length=33, bos=True), InductionTask(vocab_size=33, length=17, bos=True)
# Of one layer, and of two. A fourth rate, 2.5 times the highest, was chosen in 4 of 154 cells, for a third of the time.
_RATES_1, _RATES_2 = (1e-2, 2.5e-2, 6.3e-2), (4e-3, 1e-2, 2.5e-2)


def _recall(value_gap: int) -> tuple[Task, Task]:
    return (
        MQARTask(vocab_size=65, length=33, pairs=4, power_a=1.0, value_gap=value_gap, bos=True),
        MQARTask(vocab_size=17, length=17, pairs=2, power_a=1.0, value_gap=value_gap, bos=True),
    )


SETTINGS: dict[str, Setting] = {
    INDUCTION1: Setting(*_INDUCTION, {"n_layers": 1}, 600, _RATES_1),
    INDUCTION2: Setting(*_INDUCTION, {"n_layers": 2}, 1200, _RATES_2),
    NO_POSITIONS2: Setting(*_INDUCTION, {"n_layers": 2, "positional": "none"}, 1000, _RATES_2),
    NGRAM: Setting(
        NGramTask(vocab_size=65, length=34, bos=True),
        NGramTask(vocab_size=17, length=13, table_size=20, bos=True),
        {"n_layers": 1},
        600,
        _RATES_1,
    ),
    HOPS: Setting(
        MultiHopTask(vocab_size=9, length=33, max_hops=2),
        MultiHopTask(vocab_size=9, length=13, max_hops=2),
        {"n_layers": 2},
        600,
        _RATES_2,
        accuracy="accuracy",
    ),
    RECALL1: Setting(*_recall(1), {"n_layers": 1}, 600, _RATES_1),
    RECALL2: Setting(*_recall(2), {"n_layers": 1}, 600, _RATES_1),
    NARROW: Setting(*_INDUCTION, {"n_layers": 1, "d_model": 8, "n_heads": 1}, 600, _RATES_1),
}
"""The settings by their labels."""

SHAPE: dict[Scale, dict[str, int]] = {
    "smoke": {"d_model": 8, "n_heads": 2},
    "laptop": {"d_model": 16, "n_heads": 2},
    "gpu": {"d_model": 64, "n_heads": 8},
    "paper": {"d_model": 64, "n_heads": 8},
}
FEW = {"smoke": range(2), "laptop": range(8), "gpu": range(8), "paper": range(8)}
MANY = {"smoke": range(2), "laptop": range(8, 40), "gpu": range(8, 40), "paper": range(8, 40)}
"""Seeds of a cell, and of one in which it is asked whether two variants are *equal*, or one no better.

At its fastest rate a variant's seeds differ by a factor of two, so that eight against eight cannot tell 1 from 1.25.
The many are others than the few, which showed that.
"""
TUNING_SEEDS = {"smoke": (100,), "laptop": (100, 101), "gpu": (100, 101), "paper": (100, 101)}
TUNING, RUN = "tuning", "run"

Cell = tuple[str, str]
"""A variant and a setting, by their labels."""


def base(setting: str, scale: Scale) -> RunConfig:
    """Return the base config of a setting: vanilla."""
    of = SETTINGS[setting]
    task = of.small if scale == "smoke" else of.task
    shape: dict[str, Any] = {**SHAPE[scale], **of.model}
    run = RunConfig(
        task=task, model=ModelConfig(d_vocab=task.vocab_size, n_ctx=task.length, **shape), steps=of.steps,
        batch_size=16, warmup=10, eval_rows=256, eval_growth=0.1, checkpoints=2,
        until=ACCURACY, until_metric=of.accuracy,
    )  # fmt: skip
    return run.but(steps=20, batch_size=8, warmup=5, eval_rows=32) if scale == "smoke" else run


def rates(setting: str, scale: Scale) -> tuple[float, ...]:
    """Return the grid of learning rates of a setting."""
    return SETTINGS[setting].rates[:2] if scale == "smoke" else SETTINGS[setting].rates


def tuning_runs(cells: Iterable[Cell], scale: Scale) -> list[Planned]:
    """Plan every rate of the grid in every cell."""
    return [
        _planned(cell, lr, seed, scale)
        for cell in cells
        for lr in rates(cell[1], scale)
        for seed in TUNING_SEEDS[scale]
    ]


def chosen_runs(
    trained: Sequence[tuple[str, "Run"]], cells: Iterable[Cell], scale: Scale, many: Sequence[str] = ()
) -> list[Planned]:
    """Plan every cell at its own rate, by the finished tuning runs; with many seeds in the settings `many`."""
    tuned = variants_table(trained, scale)
    return [
        _planned(cell, _own_rate(tuned, cell), seed, scale)
        for cell in cells
        for seed in (MANY if cell[1] in many else FEW)[scale]
    ]


def variants_table(trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
    """Return a table with one row per run.

    - kind: "tuning", or "run" for those of the claims;
    - variant, setting, lr, seed, n_params;
    - steps_to_90: the first evaluated step with an accuracy of 0.9 (`Setting.accuracy`); inf: never, also in a run that
      diverged before;
    - accuracy: the same, at the run's last evaluation, and best, the highest of all evaluations;
    - horizon: the steps that the run could have taken.
    """
    table = steps_table(trained)
    accuracy = [run.metrics[run.config.until_metric] for _, run in trained]
    cells = [curve.split(_BETWEEN) for curve in table["curve"]]
    return pd.DataFrame(
        {
            "kind": np.where(table["seed"].isin(TUNING_SEEDS[scale]), TUNING, RUN),
            "variant": [variant for variant, _ in cells],
            "setting": [setting for _, setting in cells],
            "lr": table["lr"],
            "seed": table["seed"],
            "n_params": [(run.done or {}).get("n_params") for _, run in trained],
            "steps_to_90": table["steps_to_90"],
            "accuracy": [round(float(column.iloc[-1]), 6) for column in accuracy],
            "best": [round(float(column.max()), 6) for column in accuracy],
            "horizon": table["horizon"],
        }
    )


def of_cell(data: pd.DataFrame, cell: Cell, kind: str = RUN) -> pd.DataFrame:
    """Return the rows of a cell, by seed."""
    variant, setting = cell
    mine = (data["variant"] == variant) & (data["setting"] == setting) & (data["kind"] == kind)
    return data[mine].sort_values(["lr", "seed"])


def steps(data: pd.DataFrame, cell: Cell) -> list[float]:
    """Return the steps to 90% of a cell's seeds; inf: never."""
    return of_cell(data, cell)["steps_to_90"].astype(float).tolist()


def learned(data: pd.DataFrame, cell: Cell) -> tuple[int, int]:
    """Return how many of a cell's seeds reach 90%, and how many there are."""
    taken = np.array(steps(data, cell))
    return int(np.isfinite(taken).sum()), len(taken)


_BETWEEN = " | "


def fields_of(variant: str, n_heads: int) -> dict[str, Any]:
    """Return the fields that make a variant of a vanilla model with `n_heads` heads."""
    if variant != DIFFERENTIAL:
        return VARIANTS[variant]
    # Half the heads, each of twice the width.
    return {**VARIANTS[variant], "n_heads": n_heads // 2, "n_key_value_heads": None, "d_head": None}


def _planned(cell: Cell, lr: float, seed: int, scale: Scale) -> Planned:
    variant, setting = cell
    run = base(setting, scale)
    name = re.sub("[^a-z0-9.]+", "-", f"variants {setting} {variant} {lr:g} {seed}".lower()).strip("-")
    config = run.but(name=name, model=run.model.but(**fields_of(variant, run.model.n_heads)), lr=lr, seed=seed)
    return Planned(f"{variant}{_BETWEEN}{setting}", config, stacked=True)


def _own_rate(tuned: pd.DataFrame, cell: Cell) -> float:
    """Return the rate at which a cell's tuning runs need the fewest steps; if none learns, the most accurate one."""
    runs = of_cell(tuned, cell, TUNING)
    if np.isinf(runs["steps_to_90"]).all():
        best = runs.groupby("lr")["best"].mean()
        return float(best.index[int(best.to_numpy().argmax())])
    return fastest_rate(runs.rename(columns={"steps_to_90": "steps"}))
