"""Which training ends in a proof that a model is right on every sequence?

A sampled accuracy of 1.0 says nothing about the sequences that were not drawn. For one attention
layer without an MLP the worst sequence of all can be computed (`ihlab.certify`). The first study of
this name trained with a constant learning rate, and few models with RoPE were proved. This one
compares four trainings with equal steps and batches: a constant rate; a rate that falls to 0; the
falling rate with random sequences of the proof's set in each batch; and with the sequences that a
certificate names as the worst ones, found anew every 50 steps (`train_until_proved`).

A model is *proved* up to a length if it gives the right answer to every sequence of at most so many
tokens in which the query has occurred before and only the answer has ever followed it. The task
draws 16 tokens, and models read 32.

Nine models were trained before the study, on seeds 0 to 2, with KV shifting and RoPE. With a
falling rate three of width 8 were proved up to 16 to 18 tokens, with random rows up to 16 to 28,
and with the worst rows to 32. Measures, thresholds and seeds were fixed then, before the runs.

Six seeds (210 to 215) decided one of the seven questions: a share of six equal seeds has a p of
1/64, and seven questions at once need .007. Twelve fresh seeds replace them, fixed before their
runs. Questions, measures and thresholds are the same.
"""

from typing import Any

import pandas as pd

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY, KV, VANILLA
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, described
from ihlab.study.study import Grid, Run, Study
from ihlab.training.config import Lessons, RunConfig, taught
from tasks import IGNORE, InductionTask

NONE, ROPE = "no positions", "RoPE"
CONSTANT, FALLING, RANDOM, WORST = "constant rate", "falling rate", "random rows", "worst rows"
LESSONS = {RANDOM: "random", WORST: "proof"}
ROWS, SAMPLE_SEED = 4096, 2_000_000
"""Number and seed of the sampled sequences. They have 11,716 answers."""

TASK = InductionTask(vocab_size=16, length=16, min_token=0)
LONGEST = 32
GRID = Grid(
    RunConfig(
        task=TASK,
        model=ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=LONGEST, mlp="none"),
        steps=600, batch_size=96, warmup=20, lr=1e-2, weight_decay=0.0, schedule="linear",
        eval_every=25, eval_growth=0.0, eval_rows=256, checkpoints=2,
    ),
    {
        "variant": {KV: {"attention": "kv_shift"}, K_ONLY: {"attention": "k_shift"}, VANILLA: {}},
        "setting": {NONE: {"positional": "none"}, ROPE: {"positional": "rope"}},
        "training": {CONSTANT: {"schedule": "constant"}, FALLING: {}, RANDOM: {}, WORST: {}},
    },
)  # fmt: skip


def config(cell: Cell) -> RunConfig:
    """Return the config of a cell."""
    run, rows = GRID(cell), LESSONS.get(cell["training"])
    return run if rows is None else taught(run, Lessons(lengths=(16, 32), rows=rows, start=150))  # type: ignore[arg-type]


CELLS = [cell for cell in GRID.cells if cell["variant"] != VANILLA or cell["training"] == FALLING]


def measure(run: Run) -> dict[str, Any]:
    """Return the last step, whether samples are perfect, and what is proved at the trained length
    and up to 32.
    """
    import torch

    from ihlab.certify import certify
    from ihlab.measure.batches import draw

    task, model = run.config.task, run.model()
    sample = draw(task, SAMPLE_SEED, "eval", 0, ROWS)
    tokens, scored = torch.from_numpy(sample.inputs.copy()), sample.answers != IGNORE
    with torch.no_grad():
        right = (model(tokens).argmax(dim=-1).numpy() == sample.answers)[scored]
    trained = certify(model, task, margins=False)
    longest = trained.longest
    if trained.status == "proved":
        longer = certify(model, task, range(task.length + 1, LONGEST + 1), margins=False)
        longest = max(longest, longer.longest)
    return {
        "last_step": run.done["steps"] if run.done else run.config.steps,
        "accuracy": float(right.mean()),
        "perfect": float(right.all()),
        "proved": float(trained.status == "proved"),
        "refuted": float(trained.status == "refuted"),
        "longest": longest,
        "margin": float(trained.table["margin"].min()),
    }


SHIFTED = f"variant != '{VANILLA}'"


def fraction(id: str, sentence: str, hit: str, among: str, **fields: Any) -> Ask:
    """Ask for the fraction of runs that satisfy `hit` among those that satisfy `among`. Runs of one
    seed are a cluster.

    Both are pandas queries.
    """

    def clustered(data: pd.DataFrame) -> stats.Estimate:
        runs = data.query(among)
        sizes = runs["seed"].value_counts()
        hits = runs.query(hit)["seed"].value_counts().reindex(sizes.index, fill_value=0)
        return stats.clustered_share(hits.tolist(), sizes.tolist())

    return Ask(
        id,
        sentence,
        described(f"fraction of runs with {hit}, of those with {among}", clustered),
        **fields,
    )


def more(
    id: str, sentence: str, column: str, one: str, other: str, among: str, **fields: Any
) -> Ask:
    """Ask for the mean of a column with one training minus that with another: mean over seeds of
    the difference.
    """

    def paired(data: pd.DataFrame) -> stats.Estimate:
        means = data.query(among).groupby(["training", "seed"])[column].mean()
        return stats.mean((means[one] - means[other]).tolist())

    words = (
        f"{column}, {one} minus {other}, mean over seeds of the difference, of runs with {among}"
    )
    return Ask(id, sentence, described(words, paired), **fields)


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return how many models of each cell are proved, and up to which length."""
    rows = []
    for (variant, setting, training), runs in data.groupby(
        ["variant", "setting", "training"], sort=False
    ):
        lengths, n = runs["longest"], len(runs)
        rows.append(
            {
                "model": variant,
                "positions": setting,
                "training": training,
                "perfect samples": f"{runs['perfect'].sum():.0f} of {n}",
                "proved at 16": f"{runs['proved'].sum():.0f} of {n}",
                "longest proved length": f"{lengths.median():g} ({lengths.min()}-{lengths.max()})",
                "steps": f"{runs['last_step'].median():g}",
            }
        )
    return pd.DataFrame(rows)


PROOFS = Study(
    name="proofs",
    heading="Proofs: when is a model right on every sequence?",
    title="Longest length up to which every sequence is answered rightly",
    caption="Dot: a seed, after training. Bar: the median. Dotted: the trained length. At most 32 is tried.",
    declared="2026-11-29",
    cells=CELLS,
    smoke_cells=[cell for cell in CELLS if cell["variant"] == KV],
    config=config,
    seeds=range(220, 232),
    stacked=lambda cell: cell["training"] not in LESSONS,
    measure=measure,
    asks=[
        fraction(
            "falling_proved", "With a falling rate, most models of one shifted layer are proved at the trained length.",
            "proved == 1", f"{SHIFTED} and training == '{FALLING}'", above=0.5,
        ),
        more(
            "constant_fewer", "With a constant rate, fewer models of one shifted layer are proved at the trained "
            "length than with a falling one.", "proved", CONSTANT, FALLING, SHIFTED, below=0.0,
        ),
        fraction(
            "falling_rope", "With a falling rate and RoPE, most models of one shifted layer are not proved at twice "
            "the trained length.", "longest >= 32", f"{SHIFTED} and setting == '{ROPE}' and training == '{FALLING}'",
            below=0.5,
        ),
        fraction(
            "worst_proved", "Taught with the worst rows of their certificates, most models of one shifted layer are "
            "proved at twice the trained length.", "longest >= 32", f"{SHIFTED} and training == '{WORST}'", above=0.5,
        ),
        more(
            "random_shorter", "Random rows of the set do not replace the worst ones: with RoPE, models taught with "
            "them are proved up to a shorter length.", "longest", RANDOM, WORST, f"{SHIFTED} and setting == '{ROPE}'",
            below=0.0,
        ),
        fraction(
            "worst_perfect", "Models taught with the worst rows have perfect samples.", "perfect == 1",
            f"{SHIFTED} and training == '{WORST}'", above=0.75,
        ),
        fraction(
            "vanilla_refuted", "One vanilla layer is refuted.", "refuted == 1", f"variant == '{VANILLA}'", above=0.5,
        ),
    ],
    summary_columns=shown,
    view=dots("training", "longest", colors="variant", panels="setting", xlabel="longest proved length", lines=(16,)),
)  # fmt: skip
