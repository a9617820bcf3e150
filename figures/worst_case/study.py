"""At equal training, which models are right on the worst sequences?

`attack` searches, for each of 16 questions, for the sequence on which a model answers worst. The search may use every
sequence in which the query has occurred before and only the answer has ever followed it, and may move the question. The
*worst-case accuracy* is the fraction of questions that are still answered rightly. A search can miss the worst
sequence, so this bounds the accuracy on all sequences from above. For one layer a certificate has the exact smallest
margin beside it.

The first study of this name stopped each run at the first evaluation with a sampled accuracy of .999, and compared
models there. That is a moment of training and no property of a model: so this study attacks each run at 1, 2 and 4
times the steps of its first .999, and after equal training, when the rate has fallen to 0.

All models have width 16, one head in each layer, RoPE and no MLP. A column of a run that is not trained for so many
steps is empty. Measures, thresholds and seeds were fixed before the runs of the study; no model of it was attacked
before.
"""

from typing import Any

import numpy as np
import pandas as pd

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY
from ihlab.study import stats
from ihlab.study.ask import Ask, described
from ihlab.study.study import Grid, Run, Study
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks import InductionTask

V2, KV1, K1, KV2 = "vanilla, 2 layers", "KV shifting, 1 layer", f"{K_ONLY}, 1 layer", "KV shifting, 2 layers"
TASK = InductionTask(vocab_size=16, length=16, min_token=0)

SAMPLED = 0.999
"""Sampled accuracy whose first step is the unit of training time."""
TIMES = (1, 2, 4)
SEARCH: dict[str, Any] = {"questions": 16, "support": "any", "seed": 7}
CLEARLY = 0.1
"""Difference of worst-case accuracies above which one model is better than another."""
NEAR = 1e-3
"""A search has found the smallest margin if its own is at most this fraction of it, or this much, larger."""

GRID = Grid(
    RunConfig(
        task=TASK,
        model=ModelConfig(n_layers=1, d_model=16, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=TASK.length, mlp="none"),
        steps=1600, batch_size=64, warmup=20, lr=1e-2, schedule="linear", eval_every=5, eval_growth=0.05,
        eval_rows=1024, checkpoints=200,
    ),
    {
        "variant": {
            V2: {"n_layers": 2, "lr": 8e-3},
            KV1: {"attention": "kv_shift"},
            K1: {"attention": "k_shift"},
            KV2: {"n_layers": 2, "attention": "kv_shift"},
        }
    },
)  # fmt: skip


def measure(run: Run) -> dict[str, Any]:
    """Return the steps to .999, worst-case accuracies at multiples of them and at the end, and what is certified."""
    from ihlab.certify import attack, certify

    reached = first_reach(run.metrics["step"], run.metrics["accuracy"], SAMPLED)
    row: dict[str, Any] = {"steps_to_999": reached, "accuracy": float(run.metrics["accuracy"].iloc[-1])}
    for times in TIMES:
        later = [step for step in run.checkpoints if step >= times * reached]
        row[f"worst_{times}"] = np.nan
        if later:
            row[f"worst_{times}"] = attack(run.model(later[0]), TASK, before_norm=True, **SEARCH).accuracy
    attacked = attack(run, before_norm=True, **SEARCH)
    row |= {"worst_end": attacked.accuracy, "median_margin": float(attacked.table["margin"].median())}
    row |= {"proved": np.nan, "at_minimum": np.nan}
    if run.config.model.n_layers == 1:
        certified = certify(run, lengths=[TASK.length]).table.set_index(["query", "answer"])
        found = attacked.table.join(certified[["bound", "verdict"]], on=["query", "answer"])
        smallest = found["bound"]
        row["proved"] = float((found["verdict"] == "proved").mean())
        row["at_minimum"] = float((found["lowered"] <= smallest + NEAR * (1 + smallest.abs())).mean())
    return row


def better(id: str, sentence: str, one: str, other: str, column: str = "worst_end", **fields: Any) -> Ask:
    """Ask for a worst-case accuracy of one model minus that of another: mean over seeds of the difference."""

    def paired(data: pd.DataFrame) -> stats.Estimate:
        values = data.set_index(["variant", "seed"])[column]
        return stats.mean((values[one] - values[other]).tolist(), stats.DIFFERENCE)

    words = f"worst-case accuracy after the last step, {one} minus {other}, mean over seeds of the difference"
    return Ask(id, sentence, described(words, paired), **fields)


def level(id: str, sentence: str, variant: str, column: str, words: str, **fields: Any) -> Ask:
    """Ask for the mean over seeds of a column."""

    def mean(data: pd.DataFrame) -> stats.Estimate:
        return stats.mean(data.loc[data["variant"] == variant, column].tolist(), stats.SHARE)

    return Ask(id, sentence, described(f"{words}, {variant}, mean over seeds", mean), **fields)


def grown(data: pd.DataFrame) -> stats.Estimate:
    """Return how much the worst-case accuracy of one layer of KV shifting grows from the first .999 to 4 times it."""
    runs = data[data["variant"] == KV1]
    return stats.mean((runs["worst_4"] - runs["worst_1"]).tolist(), stats.DIFFERENCE)


ACCURACIES = {"worst_1": "at .999", "worst_2": "x 2", "worst_4": "x 4", "worst_end": "after 1,600"}


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return the worst-case accuracies of each model, and what a certificate says beside them."""
    rows = []
    for variant, runs in data.groupby("variant", sort=False):
        row = {"model": variant, "median steps to .999": f"{runs['steps_to_999'].median():g}"}
        for column, words in {
            "worst_1": "at .999",
            "worst_2": "x 2",
            "worst_4": "x 4",
            "worst_end": "after 1,600",
        }.items():
            known = runs[column].dropna()
            row[words] = f"{known.mean():.2f} ({known.min():.2f}-{known.max():.2f})" if len(known) else ""
        for column, words in {"proved": "proved questions", "at_minimum": "search at the certified minimum"}.items():
            row[words] = f"{runs[column].mean():.2f}" if runs[column].notna().all() else ""
        rows.append(row)
    return pd.DataFrame(rows)


WORST_CASE = Study(
    name="worst_case",
    heading="Worst case: what does a sampled accuracy hide?",
    title="Worst-case accuracy after equal training",
    caption="Fraction of 16 questions still answered rightly after the search. Dot: a seed. Bar: the median.",
    declared="2026-11-29",
    cells=GRID.cells,
    smoke_cells=[{"variant": V2}, {"variant": K1}],
    config=GRID,
    seeds=range(310, 314),
    stacked=True,
    measure=measure,
    asks=[
        better(
            "kv_better", "After equal training, one layer of KV shifting has a higher worst-case accuracy than two "
            "vanilla layers.", KV1, V2, above=CLEARLY,
        ),
        better(
            "k_better", "After equal training, one layer of shifted keys has a higher worst-case accuracy than two "
            "vanilla layers.", K1, V2, above=CLEARLY,
        ),
        better("second_layer", "A second layer of KV shifting lowers the worst-case accuracy.", KV2, KV1, below=0.0),
        Ask(
            "grows", "The worst-case accuracy at the first .999 is that of a moment: it grows up to 4 times the steps.",
            described("worst-case accuracy, 4 times minus 1 times the steps to .999, KV shifting, 1 layer", grown),
            above=CLEARLY,
        ),
        level(
            "vanilla_wrong", "Two vanilla layers are wrong on most questions in the worst sequences, after equal "
            "training.",
            V2, "worst_end", "worst-case accuracy after the last step", below=0.5,
        ),
        level(
            "kv_right", "One layer of KV shifting is right on nine of ten questions in the worst sequences, after "
            "equal training.", KV1, "worst_end", "worst-case accuracy after the last step", above=0.9,
        ),
        level(
            "search_converges", "The search finds the certified smallest margin on nine of ten questions.", KV1,
            "at_minimum", "fraction of questions at the certified smallest margin", above=0.9,
        ),
    ],
    summary_columns=shown,
    view=dots("variant", "worst_end", xlabel="worst-case accuracy", xlim=(-0.04, 1.04)),
)  # fmt: skip
