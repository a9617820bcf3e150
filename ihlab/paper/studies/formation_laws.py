"""How does the time to an induction head grow with the length of sequences?

Musat et al. (arXiv 2511.01033) prove that this time grows with the square of the context length, for a two-layer model
with separate channels that gradient descent trains on one answer per sequence. Each of its two attention layers must
find one of n tokens. If the previous-token head is given or keys are shifted, only one layer must search. The exponent
should then be smaller.

The models are those of Figure 1a, with AdamW and many answers in a sequence, as a user trains them. So this is no test
of the theorem. Every batch has 2,048 tokens, and 371 to 407 answers, depending on the length (counted, without
training). Each model has its own learning rate at each length. The exponent is the slope of log steps to 90% accuracy
on log length, fitted for each seed by least squares over the four lengths. A run that does not learn counts with its
last step. At the two longer lengths this bounds its model's slope from below, and comparisons are safe only if the
model with the smaller slope has no such run. At the two shorter lengths it would raise the slope, so nothing is then
tested. A bound from below cannot show that a slope is small either: this was added after the runs, in which the first
claim had failed by such a bound.

Known before, from seed 99 (rate .008): at lengths 16 to 128 two vanilla layers took 542, 655, 1,540 and more than 1,500
steps; with the head given 133 at 16, 309 at 64, 596 at 128. K only (.016) took 146 at 128. Prediction: the order is
vanilla, head given, K only; slope 2 is too steep for AdamW. Measures, thresholds and seeds were fixed before the runs.
"""

import numpy as np
import pandas as pd

from ihlab.plots.views import dots
from ihlab.recipes.induction import GIVEN, GIVEN_HEAD, V2, induction_run
from ihlab.recipes.labels import K_ONLY
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, ratio, values
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Scale, Study, Tuned, cells, wide
from ihlab.training.config import RunConfig
from tasks import InductionTask

K1 = f"{K_ONLY}, 1 layer"
LENGTHS = (16, 32, 64, 128)
TOKENS = 2048
"""Tokens in a batch."""
QUADRATIC = 1.5
"""A slope above this is nearer to quadratic than to linear growth."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return Figure 1a's config at a length, with a constant rate. Training stops at 90% accuracy."""
    variant, length, run = cell["variant"], cell["length"], induction_run(scale)
    fields = {"n_layers": 1, "attention": "k_shift"} if variant == K1 else {"n_layers": 2}
    run = run.replace(model=run.model.replace(**fields), clamped=(GIVEN_HEAD,) if variant == GIVEN else ())
    if scale == "smoke":
        return run
    return run.replace(
        task=InductionTask(vocab_size=128, length=length, min_token=0), model=run.model.replace(n_ctx=length),
        batch_size=TOKENS // length, steps=4000, warmup=20, schedule="constant", eval_growth=0.1,
        eval_rows=4 * TOKENS // length, stop_at_accuracy=ACCURACY, stop_at_metric="accuracy", checkpoints=2,
    )  # fmt: skip


def slopes(data: pd.DataFrame, variant: str) -> tuple[list[float], int]:
    """Return each seed's slope of log steps on log length, and the number of runs that did not learn."""
    cells = [{"variant": variant, "length": length} for length in LENGTHS]
    steps = np.array([values(data, cell, "steps_to_90") for cell in cells])
    last = np.array([values(data, cell, "horizon") for cell in cells])
    y = np.log(np.minimum(steps, last))
    y[:, np.isinf(steps[:2]).any(axis=0)] = np.nan
    return np.polyfit(np.log(LENGTHS), y, 1)[0].tolist(), int(np.isinf(steps).sum())


def in_words(fitted: tuple[list[float], int], variant: str) -> str:
    """Return the mean slope of a variant in words."""
    bound = f", at least: {fitted[1]} runs did not learn" if fitted[1] else ""
    return f"{variant}: {np.mean(fitted[0]):.2f}{bound}"


def exponent(variant: str) -> Number:
    """Return a number: the exponent of a variant."""

    def number(data: pd.DataFrame) -> Measured:
        by_seed, missed = slopes(data, variant)
        words = f"slope of log steps on log length, mean over seeds ({in_words((by_seed, missed), variant)})"
        mean = stats.mean(by_seed)
        return Measured(words, stats.unknown(mean.value) if missed else mean, len(by_seed))

    return number


def steeper(one: str, other: str) -> Number:
    """Return a number: the exponent of one variant less that of another."""

    def number(data: pd.DataFrame) -> Measured:
        a, b = slopes(data, one), slopes(data, other)
        words = f"difference of slopes of log steps on log length ({in_words(a, one)}; {in_words(b, other)})"
        return Measured(words, stats.difference(a[0], b[0]), len(a[0]))

    return number


def head_given_helps(length: int) -> Ask:
    """Ask whether a given previous-token head saves more than half of the steps at a length, so fusion is not easy."""
    with_head, vanilla = ({"variant": variant, "length": length} for variant in (GIVEN, V2))
    return Ask(
        f"head_given_helps.{length}",
        f"Two vanilla layers learn induction in less than half the steps if a previous-token head is given ({length} "
        "tokens).",
        ratio(with_head, vanilla),
        below=0.5,
        setting={"length": str(length)},
        statement=19,
        against=True,
        source="sections 3.3 and 5, which say the contrary: fusion is easy; added after the runs",
    )


CELLS = cells(variant=(V2, GIVEN, K1), length=LENGTHS)
FORMATION_LAWS = Study(
    name="formation_laws",
    title="Steps to 90% accuracy by the length of sequences",
    caption="Dot: a seed. Bar: the median. Batches have equally many tokens at every length.",
    declared="2026-11-28",
    cells=CELLS,
    smoke_cells=CELLS[::4],
    config=config,
    tuned=Tuned(rates=lambda cell: (1.6e-2, 3.2e-2) if cell["variant"] == K1 else (4e-3, 8e-3)),
    seeds=range(6),
    asks=[
        Ask(
            "quadratic", "The steps of two vanilla layers grow nearer to the square of the length than to the length.",
            exponent(V2), above=QUADRATIC, source="a question to Musat et al., arXiv 2511.01033",
        ),
        Ask(
            "given_head", "The steps of two vanilla layers grow less with the length if a previous-token head is "
            "given.",
            steeper(V2, GIVEN), above=0.0, source="a prediction of our own",
        ),
        Ask(
            "k_shift_given", "The steps of one layer with shifted keys grow less with the length than those of two "
            "vanilla layers with a given previous-token head.",
            steeper(GIVEN, K1), above=0.0, source="a prediction of our own",
        ),
        Ask(
            "k_shift", "The steps of one layer with shifted keys grow less with the length than those of two vanilla "
            "layers.",
            steeper(V2, K1), above=0.0, source="a prediction of our own",
        ),
        *map(head_given_helps, LENGTHS),
    ],
    view=dots("length", colors="variant"),
    summary_columns=wide("length", "variant"),
)  # fmt: skip
