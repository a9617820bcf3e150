"""At an equal sampled accuracy, which models are right on the worst sequences of the task?

Every run stops at the first evaluation with a sampled accuracy of .999. Then `attack` searches, for
each of 24 questions of the task, for the sequence that the task could draw and on which the model
answers worst. The *worst-case accuracy* is the fraction of questions that are still answered
rightly. A search may miss the worst sequence, so it bounds the accuracy on all sequences from
above.

All models have width 32 and four heads. Two vanilla layers do not learn induction without
positions, and with ALiBi one run had not after 2,000 steps, so neither scheme is compared. A run
that does not reach .999 has no worst-case accuracy and is left out. If most runs of a cell do not
reach it, the questions about the cell are not tested.

Five models were trained and attacked before the study, on seed 100. Their worst-case accuracies
were .375 (vanilla, 2 layers, RoPE), .25 (with an MLP), .58 (learned positions), 1.0 (K only, 1
layer, RoPE) and .875 (KV shifting, 2 layers, learned positions, MLP). Learning rates, measures,
thresholds and seeds were fixed then, before the runs of the study.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, cell_in_words, described, on_table, pick
from ihlab.study.study import Grid, Run, Study, cells
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks import InductionTask

V2, KV1, K1, KV2 = (
    "vanilla, 2 layers",
    "KV shifting, 1 layer",
    f"{K_ONLY}, 1 layer",
    "KV shifting, 2 layers",
)
TASK = InductionTask(vocab_size=32, length=16, min_token=0)
ROPE, LEARNED = "RoPE", "learned positions"
POSITIONS = {ROPE: {}, LEARNED: {"positional": "learned"}}
MLPS = {"no MLP": {"mlp": "none"}, "MLP": {}}

SAMPLED = 0.999
"""Sampled accuracy at which training stops."""
QUESTIONS, ATTACK_SEED = 24, 7
CLEARLY = 0.1
"""Difference of worst-case accuracies above which one model is better than another."""


GRID = Grid(
    RunConfig(
        task=TASK,
        model=ModelConfig(n_layers=1, d_model=32, n_heads=4, d_vocab=TASK.vocab_size, n_ctx=TASK.length),
        steps=3000, batch_size=64, warmup=20, lr=1e-2, eval_every=5, eval_growth=0.05, eval_rows=1024, checkpoints=2,
        stop_at_accuracy=SAMPLED, stop_at_metric="accuracy",
    ),
    {
        "variant": {
            V2: {"n_layers": 2, "lr": 8e-3},
            KV1: {"attention": "kv_shift"},
            K1: {"attention": "k_shift"},
            KV2: {"n_layers": 2, "attention": "kv_shift"},
        },
        "setting": POSITIONS,
        "mlp": MLPS,
    },
)  # fmt: skip


def measure(run: Run) -> dict[str, Any]:
    """Return the steps to .999, and the worst-case accuracy and the median margin of a run that got
    there.
    """
    from ihlab.certify import attack

    reached = first_reach(run.metrics["step"], run.metrics["accuracy"], SAMPLED)
    row: dict[str, Any] = {
        "steps_to_999": reached,
        "accuracy": float(run.metrics["accuracy"].iloc[-1]),
    }
    if np.isinf(reached):
        return {**row, "worst_case": np.nan, "median_margin": np.nan}
    attacked = attack(
        run, questions=QUESTIONS, support="task", restarts=4, sweeps=4, seed=ATTACK_SEED
    )
    return {
        **row,
        "worst_case": attacked.accuracy,
        "median_margin": float(attacked.table["margin"].median()),
    }


def of_reached(number: Number, *compared: Cell) -> Number:
    """Return a number of the runs that reach .999. It tests nothing if most runs of a compared cell
    do not.
    """

    def if_reached(data: pd.DataFrame) -> Measured:
        for cell in compared:
            missed = pick(data, cell)["worst_case"].isna()
            if missed.mean() > 0.5:
                why = f"{missed.sum()} of {len(missed)} runs do not reach a sampled accuracy of {SAMPLED}."
                return Measured("", None, len(missed), why)
        return number(data.dropna(subset=["worst_case"]))

    return if_reached


CHANGED = (
    "2026-11-28: runs of one seed share their batches, so each seed counts once and not each run"
)
Change = Callable[[pd.DataFrame], pd.DataFrame]


def by_seed(data: pd.DataFrame, cell: Cell) -> pd.Series:
    """Return the mean worst-case accuracy of a cell's runs, for each seed."""
    return pick(data, cell).groupby("seed")["worst_case"].mean()


def compared(
    id: str,
    sentence: str,
    one: Cell,
    other: Cell,
    change: Change = lambda data: data,
    **fields: Any,
) -> Ask:
    """Ask for the worst-case accuracy of one cell minus that of another: mean over seeds of their
    difference.

    As first declared, it was the median over all pairs of runs.
    """

    def of_seeds(data: pd.DataFrame) -> stats.Estimate:
        return stats.mean(
            (by_seed(data, one) - by_seed(data, other)).dropna().tolist(), stats.DIFFERENCE
        )

    def of_runs(data: pd.DataFrame) -> stats.Estimate:
        first, second = (pick(data, cell)["worst_case"].tolist() for cell in (one, other))
        return stats.shift(first, second, stats.DIFFERENCE)

    words = f"worst-case accuracy, {cell_in_words(one)} minus {cell_in_words(other)}"
    numbers = [
        on_table(change, of_reached(described(f"{words}, {what}", estimate), one, other))
        for what, estimate in (
            ("mean over seeds of the difference", of_seeds),
            ("median over pairs of runs", of_runs),
        )
    ]
    return Ask(id, sentence, numbers[0], first=numbers[1], changed=CHANGED, **fields)


def level(id: str, sentence: str, cell: Cell, **fields: Any) -> Ask:
    """Ask for the worst-case accuracy of a cell: the mean of its seeds' means. First declared: of
    its runs.
    """
    words = f"worst-case accuracy, {cell_in_words(cell)}"
    numbers = [
        of_reached(described(f"{words}, mean over {what}", estimate), cell)
        for what, estimate in (
            ("seeds", lambda data: stats.mean(by_seed(data, cell).tolist(), stats.SHARE)),
            ("runs", lambda data: stats.mean(pick(data, cell)["worst_case"].tolist(), stats.SHARE)),
        )
    ]
    return Ask(id, sentence, numbers[0], first=numbers[1], changed=CHANGED, **fields)


def better(model: str, setting: str) -> Ask:
    """Ask whether one shifted layer is clearly better than two vanilla layers with one position
    scheme.
    """
    return compared(
        "better_than_vanilla",
        f"{model}, has a higher worst-case accuracy than two vanilla layers ({setting}), at the same sampled accuracy.",
        {"variant": model, "setting": setting},
        {"variant": V2, "setting": setting},
        above=CLEARLY,
    ).at(model=model, positions=setting)


def one_layer(data: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one-layer models."""
    return data[data["variant"].isin([KV1, K1])]


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return how many runs of each cell reach .999 and when, and their worst-case accuracies and
    margins.
    """
    rows = []
    for (variant, setting, mlp), runs in data.groupby(["variant", "setting", "mlp"], sort=False):
        there = runs.dropna(subset=["worst_case"])
        worst = there["worst_case"]
        rows.append(
            {
                "model": variant,
                "positions": setting,
                "MLP": mlp,
                "reach .999": f"{len(there)} of {len(runs)}",
                "median steps": f"{there['steps_to_999'].median():.0f}",
                "worst-case accuracy, mean": f"{worst.mean():.2f} ({worst.min():.2f}-{worst.max():.2f})",
                "median margin": f"{there['median_margin'].median():.1f}",
            }
        )
    return pd.DataFrame(rows)


WORST_CASE = Study(
    name="worst_case",
    heading="Worst case: what does a sampled accuracy hide?",
    title="Worst-case accuracy of models with a sampled accuracy of .999",
    caption="Fraction of 24 questions still answered rightly after the search. Dot: a seed. Bar: the median.",
    declared="2026-11-28",
    cells=GRID.cells,
    smoke_cells=cells(variant=(V2, K1), setting=(ROPE,), mlp=("no MLP",)),
    config=GRID,
    seeds=range(300, 304),
    stacked=True,
    measure=measure,
    asks=[
        *(better(model, setting) for model in (KV1, K1) for setting in POSITIONS),
        compared(
            "two_shifted_layers",
            "Two layers of KV shifting have a higher worst-case accuracy than two vanilla layers.",
            {"variant": KV2}, {"variant": V2}, above=CLEARLY,
        ),
        compared(
            "second_layer", "A second layer of KV shifting lowers the worst-case accuracy.",
            {"variant": KV2}, {"variant": KV1}, below=0.0,
        ),
        compared(
            "k_as_kv", "Shifted keys alone have the worst-case accuracy of shifted keys and values, within .1.",
            {"variant": K1}, {"variant": KV1}, above=-CLEARLY,
        ),
        compared(
            "mlp", "An MLP lowers the worst-case accuracy of one shifted layer.",
            {"mlp": "MLP"}, {"mlp": "no MLP"}, one_layer, below=0.0,
        ),
        level(
            "vanilla_wrong", "Two vanilla layers are wrong on most questions in the worst sequences of the task.",
            {"variant": V2}, below=0.5,
        ),
        level(
            "k_right", "One layer of shifted keys without an MLP is right on nine of ten questions in the worst "
            "sequences of the task.", {"variant": K1, "mlp": "no MLP"}, above=0.9,
        ),
    ],
    summary_columns=shown,
    view=dots(
        "variant", "worst_case", panels="setting", colors="mlp", xlabel="worst-case accuracy", xlim=(-0.04, 1.04)
    ),
)  # fmt: skip
