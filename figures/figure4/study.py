"""Figure 4b and 4c: training at many learning rates on real text, and whether KV shifting diverges
less often.

Models of two layers are trained on the sources of the standard library, at a constant rate after
the warm-up. Gradients are not clipped, because clipping hides divergence.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.measure.batches import EVAL_SEED
from ihlab.plots.views import dots
from ihlab.recipes.labels import KV, VANILLA
from ihlab.recipes.real_text import text_run
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, NoRunsError, Number, on_table
from ihlab.study.claim import at_floor
from ihlab.study.study import Grid, Run, Study
from tasks import IGNORE, TextTask

ARMS = (VANILLA, KV)

STABLE_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 0.128, 0.256)
"""Learning rates of Figure 4b's claim. No run of vanilla or KV shifting with the first six seeds
diverged at them. They were fixed before the runs with new seeds."""
RATES = (*STABLE_RATES, 0.362, 0.512)
"""Learning rates. They were chosen on vanilla runs of an otherwise unused seed, from its best rate
to divergence. The two lowest rates and 0.362 were added later: the best had been at 0.008, and all
had diverged at 0.512 but none at 0.256."""
SEEDS = 6
"""Number of seeds of both arms at every rate."""
NEW_SEEDS = range(SEEDS, 12)
"""Seeds of Figure 4b's claim, declared on 2026-11-26: with the first six, most rates had been
undecided.
"""

RISE = 0.5
"""By the measure first declared, a run had diverged if it ended this many nats above its own lowest
loss.
"""
LAST = 3
"""Number of final evaluations whose mean is a run's last loss. A single evaluation may hit a spike.
"""


TASK = TextTask(vocab_size=1024, length=128)
GRID = Grid(
    text_run().replace(
        task=TASK, model=text_run().model.replace(d_model=64, n_heads=2, n_ctx=TASK.length), steps=300, warmup=50,
        eval_every=15, compile=False, schedule="constant", clip=None, checkpoints=2,
    ),
    {"arm": {VANILLA: {}, KV: {"attention": "kv_shift"}}, "lr": {rate: {"lr": rate} for rate in RATES}},
)  # fmt: skip
"""Narrower models and shorter sequences than those of `text`, so that six seeds of each rate take
half an hour.
"""


def seeds(cell: Cell) -> range:
    """Return the seeds of an arm at a learning rate. The stable rates also have the new seeds."""
    return range(NEW_SEEDS.stop if cell["lr"] in STABLE_RATES else SEEDS)


def measure(run: Run) -> dict[str, float]:
    """Return a run's lowest and last held-out losses, and whether it diverged.

    `least` is the lowest held-out loss at any evaluation and `last` the mean of the last three, in
    nats per token. A run has diverged if it ends no better than predicting token frequencies
    (`frequency_loss`), or if its loss stopped being finite. In the second case `last` is
    ln(vocabulary), the loss of a uniform guess. This threshold is the same for all runs: relative
    to its own `least`, a run that learns more before diverging would seem less stable.
    """
    losses = run.metrics["eval_loss"].to_numpy(dtype=float)
    finite = not run.diverged and bool(np.isfinite(losses).all())
    last = float(losses[-LAST:].mean()) if finite else float(np.log(run.config.model.d_vocab))
    frequencies = frequency_loss(cast(TextTask, run.config.task))
    return {
        "least": float(np.nanmin(losses)),
        "last": last,
        "frequencies": frequencies,
        "diverged": not finite or last >= frequencies,
    }


@lru_cache
def frequency_loss(task: TextTask) -> float:
    """Return the unigram loss of held-out tokens, with frequencies from as many training sequences,
    in nats per token.

    It uses no context: a model whose loss is not lower has learned nothing beyond frequencies, or
    lost what it had learned. Counts start at 1, so that no token has probability 0.
    """
    rng, rows = np.random.default_rng(EVAL_SEED), 1024
    seen, held_out = (of.batch(rows, rng).targets for of in (task, task.held_out))
    # Packed documents end without a target.
    counts = 1 + np.bincount(seen[seen != IGNORE], minlength=task.vocab_size)
    return float(-np.log(counts / counts.sum())[held_out[held_out != IGNORE]].mean())


# Questions


def critical_rate(data: pd.DataFrame) -> float | None:
    """Return the lowest learning rate at which more than half the runs of either arm diverged, or
    None.
    """
    share = data.groupby(["lr", "arm"])["diverged"].mean().groupby("lr").max()
    over = share[share > 0.5]
    return None if over.empty else float(over.index.to_numpy().min())


def less_vanilla(data: pd.DataFrame) -> pd.DataFrame:
    """Return KV shifting's last loss - vanilla's with the same seed: a row for each seed, a column
    for each rate.
    """
    last: Any = data.pivot_table(index="seed", columns=["arm", "lr"], values="last")
    return last[KV] - last[VANILLA]


def first_seeds(data: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the seeds that every arm has at every rate."""
    return data[data["seed"] < SEEDS]


def on_average(data: pd.DataFrame) -> Measured:
    """Measure Figure 4b by the mean over the stable rates. A diverged run counts with its `last`
    from the table.
    """
    runs = data[data["seed"].isin(NEW_SEEDS) & data["lr"].isin(STABLE_RATES)]
    if runs.empty:
        raise NoRunsError("The table has no run with a new seed.")
    differences = less_vanilla(runs).mean(axis="columns", skipna=False)
    lost, note = int(runs["diverged"].sum()), ""
    if lost:
        note = f"; {lost} of these runs diverged and count with their last loss"
    words = (
        "final held-out loss (nats per token), KV shifting minus vanilla, by seed: mean over the "
        f"{len(STABLE_RATES)} learning rates at which no run of either diverged with seeds 0 to {SEEDS - 1} "
        f"({min(STABLE_RATES):g} to {max(STABLE_RATES):g}){note}"
    )
    return Measured(words, stats.mean(differences.tolist()), len(differences))


def fewer_lost(words: str, lost: Callable[[pd.DataFrame], "pd.Series[bool]"]) -> Number:
    """Return vanilla's fraction of `lost` runs minus KV shifting's, at the lowest rate where most
    of either diverge.
    """

    def number(data: pd.DataFrame) -> Measured:
        critical = critical_rate(data)
        if critical is None:
            return Measured("", None, 0, "Neither diverges at any rate of the grid.")
        runs = data[data["lr"] == critical]
        vanilla, other = (lost(runs[runs["arm"] == kind]).tolist() for kind in (VANILLA, KV))
        measure = (
            f"fraction of runs that end {words} at learning rate {critical:g}, the lowest at which most runs of either "
            f"model diverge: vanilla minus {KV} ({sum(vanilla)} and {sum(other)} of {len(other)})"
        )
        difference = stats.share_difference(sum(vanilla), len(vanilla), sum(other), len(other))
        why = f"All runs of both models diverge at {critical:g}, so neither diverges less often."
        none_left = at_floor(*(1 - float(np.mean(side)) for side in (vanilla, other)))
        return Measured(measure, difference, len(other), why if none_left else "")

    return on_table(first_seeds, number)


# What is shown


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return the mean final loss at every rate, and the fraction of runs that diverged."""
    last, lost = (
        data.pivot_table(index="lr", columns="arm", values=column)[[*ARMS]]
        for column in ("last", "diverged")
    )
    return last.join(lost.add_suffix(" diverged")).round(3).reset_index()


def differences(data: pd.DataFrame) -> Figure:
    """Draw each seed's loss of KV shifting minus vanilla's at the stable rates, and its mean over
    these rates.
    """
    table = less_vanilla(data[data["lr"].isin(STABLE_RATES)])
    table = table.assign(mean=table.mean(axis="columns")).rename(columns=str)
    rows = table.melt(ignore_index=False, value_name="gap").dropna().reset_index()
    first = f"seeds 0 to {SEEDS - 1}"
    return _differences(
        rows.assign(seeds=np.where(rows["seed"] < SEEDS, first, "new seeds, which the claim uses"))
    )


_differences = dots(
    "lr", "gap", panels="seeds", xlabel="held-out loss less vanilla's", lines=(0.0,)
)
_diverged = dots(
    "lr",
    "last",
    colors="arm",
    xlabel="held-out loss at the end (rows: learning rate; dotted: token frequencies)",
)


def diverged(data: pd.DataFrame) -> Figure:
    """Draw the last losses at the highest rates, and the loss of predicting token frequencies."""
    figure = _diverged(first_seeds(data[data["lr"] >= max(STABLE_RATES)]))
    figure.axes[0].axvline(data["frequencies"].iloc[0], color="0.4", linestyle=":", linewidth=1)
    return figure


FIGURE4 = Study(
    name="figure4",
    heading="Figure 4: which learning rates work on text?",
    title="Two layers on text without clipping, by learning rate",
    caption="Marker: a seed. Bar: the median.",
    declared="2026-11-23",
    cells=GRID.cells,
    smoke_cells=[cell for cell in GRID.cells if cell["lr"] == max(STABLE_RATES)],
    config=GRID,
    seeds=seeds,
    measure=measure,
    asks=(
        Ask(
            "better_at_rates", "KV shifting achieves better results than vanilla at different learning rates.",
            on_average, below=0.0, source="Section 4.3, Figure 4b", of_paper=True, statement=22, declared="2026-11-26",
        ),
        Ask(
            "stable_where_vanilla_diverges",
            "At a learning rate at which vanilla diverges, KV shifting does not.",
            fewer_lost("no better than token frequencies", lambda runs: runs["diverged"]), above=0.0,
            first=fewer_lost(
                f"{RISE} nats above their own lowest loss", lambda runs: runs["last"] >= runs["least"] + RISE
            ),
            changed="2026-11-23: a run that learns more before it diverges has farther to rise",
            source="Section 4.3, Figure 4c", of_paper=True, statement=22,
        ),
    ),
    summary_columns=shown,
    view=differences,
    more_views={"diverged": diverged},
)  # fmt: skip
