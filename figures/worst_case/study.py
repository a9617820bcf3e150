"""After equal training, which models are right on the worst sequences of the task?

`attack` searches, for each of 24 questions of the task, for the sequence that the task could draw
and on which the model answers worst. The *worst-case accuracy* is the fraction of questions that
are still answered rightly. A search may miss the worst sequence, so it bounds the accuracy on all
sequences from above. For one attention layer a certificate knows the worst sequence: at the longest
training, a second search of its set (`support="any"`) is held against it. For two layers, a search
of twice as many restarts and sweeps shows what the first one missed.

The first study of this name stopped each run at its first sampled accuracy of .999, at a constant
learning rate. It measured the moment of that stop: four seeds decided one of ten questions. Here
all models train for the same number of steps, with a rate that falls to 0: for 400, about where two
vanilla layers first reach .999, and for two and four times as many.

All models have width 32, one head and no MLP. The learning rate was chosen before the study, on
seed 100 and 800 steps: .016 is the best of five for two vanilla layers (.004 to .064, by worst-case
accuracy: .17, .46, .71, .58, 0 with RoPE, .04, .42, .58, .33, 0 with learned positions). One
shifted layer had .92 to 1 at every one of them. Two layers of KV shifting were not tried. Measures,
thresholds and seeds were fixed then, before the runs.
"""

import math
from typing import Any

import pandas as pd

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY
from ihlab.study import stats
from ihlab.study.ask import Ask, described
from ihlab.study.study import Grid, Run, Study
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
SHORT, MIDDLE, LONG = "400 steps", "800 steps", "1,600 steps"
STEPS = {SHORT: 400, MIDDLE: 800, LONG: 1600}

QUESTIONS, ATTACK_SEED = 24, 7
RESTARTS, SWEEPS = 4, 4
CLEARLY = 0.1
"""Difference of worst-case accuracies above which one model is better than another."""

GRID = Grid(
    RunConfig(
        task=TASK,
        model=ModelConfig(
            n_layers=1, d_model=32, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=TASK.length, mlp="none"
        ),
        batch_size=64, warmup=20, lr=1.6e-2, schedule="linear",
        eval_every=100, eval_growth=0.0, eval_rows=1024, checkpoints=2,
    ),
    {
        "variant": {
            V2: {"n_layers": 2},
            KV1: {"attention": "kv_shift"},
            K1: {"attention": "k_shift"},
            KV2: {"n_layers": 2, "attention": "kv_shift"},
        },
        "setting": {ROPE: {}, LEARNED: {"positional": "learned"}},
        "training": {label: {"steps": steps} for label, steps in STEPS.items()},
    },
)  # fmt: skip

CELLS = [cell for cell in GRID.cells if cell["variant"] != KV2 or cell["training"] == LONG]


def measure(run: Run) -> dict[str, Any]:
    """Return the sampled and the worst-case accuracy and the smallest margin; after the longest
    training, also what a longer search finds (two layers), or in how many questions search and
    certificate agree (one layer).
    """
    from ihlab.certify import attack

    config = run.config
    restarts, sweeps = RESTARTS, SWEEPS
    if config.steps < STEPS[SHORT]:
        restarts, sweeps = 1, 1  # smoke scale: untrained models take long
    found = attack(run, questions=QUESTIONS, restarts=restarts, sweeps=sweeps, seed=ATTACK_SEED)
    row: dict[str, Any] = {
        "accuracy": float(run.metrics["accuracy"].iloc[-1]),
        "worst_case": found.accuracy,
        "smallest_margin": float(found.table["margin"].min()),
        "worst_case_longer": math.nan,
        "certified": math.nan,
        "agree": math.nan,
    }
    longest = config.steps == STEPS[LONG]
    if longest and config.model.n_layers == 1:
        row |= against_certificate(run)
    elif longest:
        longer = attack(
            run, questions=QUESTIONS, restarts=2 * RESTARTS, sweeps=2 * SWEEPS, seed=ATTACK_SEED
        )
        row["worst_case_longer"] = longer.accuracy
    return row


def against_certificate(run: Run) -> dict[str, float]:
    """Return the proved fraction of all pairs of query and answer, and the fraction of attacked
    questions that the search answers as the certificate does: right on every sequence or not.
    """
    from ihlab.certify import attack, certify

    proof = certify(run, lengths=[TASK.length]).table.set_index(["query", "answer"])
    found = attack(
        run, questions=QUESTIONS, support="any", restarts=RESTARTS, sweeps=SWEEPS,
        before_norm=True, seed=ATTACK_SEED,
    )  # fmt: skip
    known = found.table.join(proof["verdict"], on=["query", "answer"])
    agree = known["wrong"] == (known["verdict"] == "refuted")
    return {
        "certified": float((proof["verdict"] == "proved").mean()),
        "agree": float(agree.mean()),
    }


ONE_LAYER = f"variant in ['{KV1}', '{K1}']"
LONGEST = f"training == '{LONG}'"


def of(variant: str) -> str:
    """Return the query of a model's runs."""
    return f"variant == '{variant}'"


def level(id: str, sentence: str, among: str, column: str = "worst_case", **fields: Any) -> Ask:
    """Ask for the mean of a fraction: mean over seeds of the mean of their runs, which share their
    batches. `among` is a pandas query.
    """

    def mean(data: pd.DataFrame) -> stats.Estimate:
        means = data.query(among).groupby("seed")[column].mean()
        return stats.mean(means.tolist(), stats.SHARE)

    return Ask(
        id, sentence, described(f"{column}, mean over seeds, of runs with {among}", mean), **fields
    )


def compared(
    id: str,
    sentence: str,
    one: str,
    other: str,
    among: str,
    column: str = "worst_case",
    **fields: Any,
) -> Ask:
    """Ask for the difference of two groups of runs: mean over seeds."""

    def difference(data: pd.DataFrame) -> stats.Estimate:
        runs = data.query(among)
        first, second = (runs.query(group).groupby("seed")[column].mean() for group in (one, other))
        return stats.mean((first - second).tolist(), stats.DIFFERENCE)

    words = (
        f"{column}, {one} minus {other}, mean over seeds of the difference, of runs with {among}"
    )
    return Ask(id, sentence, described(words, difference), **fields)


def better(model: str, setting: str) -> Ask:
    """Ask whether one shifted layer is better than two vanilla layers with one position scheme."""
    return compared(
        "better_after_equal_training",
        f"{model}, has a higher worst-case accuracy than two vanilla layers after equal training ({setting}).",
        of(model),
        of(V2),
        f"{LONGEST} and setting == '{setting}'",
        above=CLEARLY,
    ).at(model=model, positions=setting)


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies of each cell."""
    rows = []
    for (variant, setting, training), runs in data.groupby(
        ["variant", "setting", "training"], sort=False
    ):
        worst = runs["worst_case"]
        rows.append(
            {
                "model": variant,
                "positions": setting,
                "training": training,
                "sampled accuracy, lowest": f"{runs['accuracy'].min():.4f}",
                "worst-case accuracy, mean": f"{worst.mean():.2f} ({worst.min():.2f}-{worst.max():.2f})",
                "after a longer search": f"{runs['worst_case_longer'].mean():.2f}",
                "pairs proved": f"{runs['certified'].mean():.3f}",
            }
        )
    return pd.DataFrame(rows).replace("nan", "")


WORST_CASE = Study(
    name="worst_case",
    heading="Worst case: what does a sampled accuracy hide?",
    title="Worst-case accuracy after equal training",
    caption="Fraction of 24 questions still answered rightly after the search. Dot: a seed. Bar: the median.",
    declared="2026-11-29",
    cells=CELLS,
    smoke_cells=[cell for cell in CELLS if cell["setting"] == ROPE and cell["training"] == LONG],
    config=GRID,
    seeds=range(400, 406),
    stacked=True,
    measure=measure,
    asks=[
        *(better(model, setting) for model in (KV1, K1) for setting in (ROPE, LEARNED)),
        compared(
            "two_shifted_after_equal_training",
            "Two layers of KV shifting have a higher worst-case accuracy than two vanilla layers after equal training.",
            of(KV2), of(V2), LONGEST, above=CLEARLY,
        ),
        compared(
            "vanilla_trained_longer", "Four times the training raises the worst-case accuracy of two vanilla layers.",
            LONGEST, f"training == '{SHORT}'", of(V2), above=CLEARLY,
        ),
        level(
            "vanilla_wrong_after_longest", "Two vanilla layers are wrong on most questions in the worst sequences of "
            "the task, after the longest training too.", f"{of(V2)} and {LONGEST}", below=0.5,
        ),
        level(
            "shifted_right_after_longest", "One shifted layer is right on nine of ten questions in the worst sequences "
            "of the task, after the longest training.", f"{ONE_LAYER} and {LONGEST}", above=0.9,
        ),
        level(
            "search_agrees_with_proof", "For nine of ten questions to one shifted layer, search and certificate agree "
            "whether every sequence is answered rightly.", f"{ONE_LAYER} and {LONGEST}", "agree", above=0.9,
        ),
    ],
    summary_columns=shown,
    view=dots(
        "training", "worst_case", panels="setting", colors="variant", xlabel="worst-case accuracy", xlim=(-0.04, 1.04)
    ),
)  # fmt: skip
