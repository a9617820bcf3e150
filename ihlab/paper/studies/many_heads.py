"""With many heads, some start closer to (alpha1, beta1) = (0, 1). Does that make induction easier to learn?

Section 3.2 says so. But with heads of one width, more heads also mean more parameters. In a control, all heads of a
model start from one draw of (alpha1, beta1), so that more heads bring more parameters and no better start. If the
starts are the reason, the gain vanishes there. Starts are drawn from U(0, 1) as in the paper. Each head's alpha and
beta are its own in training, in both cases.

At the start alpha1 and beta1 are in [0, 1] and sum to 1 with alpha2 and beta2, so they equal the fractions
|alpha1| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|), which do not depend on the gauge.

Rate and steps were chosen on eight seeds that no claim uses, with 1 and 8 heads that start independently. At
rates of .016 and .032 both models learn faster, with about the same ratio of steps. At .008, steps are long compared
with the gaps between evaluations. The control had not been tried when measures and thresholds were fixed.
"""

from functools import partial

import numpy as np
import pandas as pd

from ihlab.plots.views import dots
from ihlab.recipes.induction import induction_run
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, described, pick, ratio
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Run, Scale, Study, cells, steps_to_90
from ihlab.theory.gauge import paper_distance
from ihlab.training.config import RunConfig

OWN, ONE = "each head has its own start", "all heads have one start"
HEADS = (2, 4, 8)
EASIER, NO_GAIN = 0.8, 1.25
"""Ratio of steps below which learning is much easier, and the largest factor that counts as no difference."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the run of one layer with heads of 8 dimensions.

    In the control, and in models with a single head, every head starts from one draw of (alpha1, beta1).
    """
    run = induction_run("smoke" if scale == "smoke" else "laptop")
    model = run.model.replace(attention="kv_shift", n_heads=1, d_head=8).replace(n_heads=cell["heads"])
    run = run.replace(model=model)
    if cell["starts"] == ONE:
        alpha1, beta1 = np.random.default_rng([1, cell["seed"]]).uniform(size=2).round(6).tolist()
        run = run.replace(init_shift=(alpha1, beta1))
    if scale == "smoke":
        return run.replace(checkpoints=2, steps=8, warmup=2)
    return run.replace(
        checkpoints=2, steps=1000, batch_size=16, lr=8e-3, warmup=20, schedule="constant",
        stop_at_accuracy=ACCURACY, eval_every=5, eval_growth=0.02, eval_rows=256,
    )  # fmt: skip


def measure(run: Run) -> dict[str, float]:
    """Return the steps to 90%, and the distance to (0, 1) of the head that starts nearest to it."""
    first, heads = run.metrics.iloc[0], range(run.config.model.n_heads)
    distance = min(float(paper_distance(first[f"alpha1_0.{i}"], first[f"beta1_0.{i}"])) for i in heads)
    return {**steps_to_90(run), "distance": distance}


def correlation(data: pd.DataFrame, starts: str) -> stats.Estimate:
    """Return the rank correlation of `distance` and steps among models with equally many heads, mean over `HEADS`."""
    counts = [heads for heads in HEADS if heads in set(data["heads"])]
    of_counts = [pick(data, {"heads": heads, "starts": starts})[["distance", "steps_to_90"]] for heads in counts]

    def mean_correlation(seeds: np.ndarray) -> float:
        return float(np.mean([runs.iloc[seeds].rank().corr().iloc[0, 1] for runs in of_counts]))

    return stats.jackknife(mean_correlation, len(of_counts[0]), stats.DIFFERENCE)


paper = partial(Ask, source="section 3.2", statement=14, of_paper=True)


def nearer(name: str, starts: str) -> Ask:
    """Ask whether models whose nearest head starts closer to (0, 1) learn in fewer steps."""
    words = "rank correlation between the nearest head's distance to (0, 1) and the steps, mean over 2, 4 and 8 heads"
    return paper(
        f"nearer_is_easier.{name}",
        f"With many heads, the closer the nearest head starts to (0, 1), the easier induction is to learn ({starts}).",
        described(f"{words}; jackknife over seeds", lambda data: correlation(data, starts)),
        above=0.0,
        setting={"starts": starts},
        of_paper=starts == OWN,
        statement=14 if starts == OWN else None,
    )


OWN8, ONE8, ONE1 = {"heads": 8, "starts": OWN}, {"heads": 8, "starts": ONE}, {"heads": 1, "starts": ONE}

MANY_HEADS = Study(
    name="many_heads",
    title="Do more heads learn induction faster, and is it because some start closer to (0, 1)?",
    caption="Marker: a seed. Bar: the median. A single head has one start.",
    declared="2026-11-26",
    cells=[ONE1, *cells(heads=HEADS, starts=(OWN, ONE))],
    smoke_cells=[ONE1, *cells(heads=(2,), starts=(OWN, ONE))],
    config=config,
    seeds=range(24),
    stacked=True,
    measure=measure,
    asks=(
        paper(
            "many_heads_easier", "With many heads, learning induction heads is much easier than with one.",
            ratio(OWN8, ONE1), below=EASIER,
        ),
        paper(
            "gain_needs_own_starts", "The gain from many heads vanishes if all heads have the same start.",
            ratio(ONE8, ONE1, factor=True), below=NO_GAIN, statement=None, of_paper=False,
        ),
        paper(
            "own_starts_easier",
            "With many heads, induction is much easier to learn if each has its own start: some are closer to (0, 1).",
            ratio(OWN8, ONE8), below=EASIER,
        ),
        nearer("own_starts", OWN),
        nearer("one_start", ONE),
    ),
    view=dots("heads", colors="starts", xlabel="training steps to 90% accuracy (rows: heads of 8 dimensions)"),
)  # fmt: skip
