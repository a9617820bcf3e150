"""Figure 4b and 4c: training at many learning rates on real text, and why KV shifting diverges less often.

Models of two layers are trained on the sources of the standard library, at a constant rate after the warm-up. Gradients
are not clipped, because clipping hides divergence. In two controls alpha and beta are never trained. "Frozen" keeps the
initial values of KV shifting. They sum to 1, so mixed keys and values start smaller than vanilla's. "Frozen at norm 1"
undoes that.
"""

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, at_floor, changed
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.labels import KV, VANILLA
from ihlab.claims.learning_curves import plan
from ihlab.claims.real_text import text_run
from ihlab.plots.stability import differences_by_rate, diverged_by_rate
from ihlab.plots.style import PAGE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import TextTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

FROZEN, UNIT = "frozen", "frozen at norm 1"
ARMS = {VANILLA: "vanilla", KV: "kv_shift", FROZEN: "kv_frozen", UNIT: "kv_frozen_unit"}

RATES: dict[Scale, tuple[float, ...]] = {
    "smoke": (4e-3, 0.5),
    "laptop": (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 0.128, 0.256, 0.362, 0.512),
    "gpu": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2),
    "paper": (1e-4, 2e-4, 1e-3, 1e-2),
}
"""Learning rates. The laptop's were chosen on vanilla runs of an otherwise unused seed, from its best rate to
divergence. The two lowest rates and 0.362 were added later: three of four arms had been best at 0.008, and all had
diverged at 0.512 but none at 0.256."""
SEEDS = {"smoke": 2, "laptop": 6, "gpu": 6, "paper": 5}
"""Number of seeds of every arm at every rate. They count from 0."""
NEW_SEEDS: dict[Scale, range] = {"laptop": range(6, 12)}
"""Seeds of Figure 4b's claim, declared on 2026-11-26: with the first six, most rates had been undecided."""
STABLE_RATES: dict[Scale, tuple[float, ...]] = {
    "laptop": (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 0.128, 0.256),
}  # fmt: skip
"""Learning rates of Figure 4b's claim. No run of vanilla or KV shifting with the first six seeds diverged at them.
They were fixed before the runs with new seeds. A scale without new seeds uses its own stable rates."""

RISE = 0.5
"""Nats above a run's own lowest loss. By the measure first declared, a run that ended this high had diverged."""
STABLE = {
    KV: ("stable_where_vanilla_diverges", "At a rate at which vanilla diverges KV shifting does not."),
    FROZEN: ("frozen_stable", "Neither does it with weights frozen at their start."),
    UNIT: ("frozen_norm_1_stable", "Nor with frozen weights of norm 1, whose keys start no smaller."),
}
LAST = 3
"""Number of final evaluations whose mean is a run's last loss. A single evaluation may hit a spike."""


def unclipped_run(scale: Scale) -> RunConfig:
    """Return `text_run` at a constant rate without clipping.

    A laptop's models are narrower and their sequences shorter, so that six seeds of each rate take half an hour.
    """
    run = text_run(scale)
    if scale == "laptop":
        task = TextTask(vocab_size=run.task.vocab_size, length=128)
        model = run.model.replace(d_model=64, n_heads=2, n_ctx=task.length)
        run = run.replace(task=task, model=model, steps=300, warmup=50, eval_every=15, compile=False)
    return run.replace(schedule="constant", clip=None, checkpoints=2)


class Figure4:
    """Held-out loss at each learning rate, and how many runs diverge."""

    name = "figure4"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every arm at every rate, and then the new seeds of vanilla and KV shifting at the stable rates."""
        run = unclipped_run(scale)
        grid = [(arm, lr, range(SEEDS[scale])) for arm in ARMS for lr in RATES[scale]]
        if scale in NEW_SEEDS:
            grid += [(arm, lr, NEW_SEEDS[scale]) for arm in (VANILLA, KV) for lr in STABLE_RATES[scale]]
        return [
            Planned(arm, planned.config)
            for arm, lr, seeds in grid
            for planned in plan(self.name, run.replace(lr=lr), {f"{arm} {lr:g}": {"attention": ARMS[arm]}}, seeds)
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather a row for each run: arm, lr, seed, least, last, frequencies and diverged.

        `least` is the lowest held-out loss at any evaluation and `last` the mean of the last three, in nats per token.
        A run has diverged if it ends no better than predicting token frequencies (`frequency_loss`), or if its loss
        stopped being finite. In the second case `last` is ln(vocabulary), the loss of a uniform guess. All runs
        share one threshold: relative to its own `least`, a run that learns more before diverging would seem less
        stable.
        """
        return pd.DataFrame([_row(arm, run) for arm, run in trained])

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge Figure 4b over the stable rates, 4c where most runs of either side diverge, and the controls.

        Only Figure 4b's claim uses the new seeds.
        """
        claim, first = partial(Claim, declared="2026-11-23", seeds=SEEDS[scale]), _first(data, scale)
        return [
            _on_average(data, scale),
            *(_less_often(first, scale, claim, arm) for arm in STABLE),
            claim(
                id="frozen_helps",
                of_paper=False,
                source="beside section 4.3",
                sentence="Smoother keys and values at the start are enough for a gain: frozen weights help.",
                measure="held-out loss at the end, frozen less vanilla, each at the rate at which its mean is least",
                estimate=stats.mean((_at_best(first, FROZEN) - _at_best(first, VANILLA)).tolist()),
                threshold=0.0,
                right_side="below",
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return each arm's least held-out loss, the rate that gives it, and where most of its runs diverge."""
        first, rows = _first(data, scale), []
        for arm in ARMS:
            edge, lr = critical_rate(first, arm), _best_rate(first, arm)
            at = f"{lr:g}{' (lowest of the grid)' if lr == first['lr'].min() else ''}"
            rows.append((arm, f"{_at_best(first, arm).mean():.3f}", at, "never" if edge is None else f"from {edge:g}"))
        columns = ["model", "least held-out loss (nats a token)", "at the learning rate", "most runs diverge"]
        return pd.DataFrame(rows, columns=columns)

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw loss - vanilla's loss at each stable rate, and the fraction of runs that diverge from the highest on."""
        figure = new_figure(PAGE, 4.4)
        first, (runs, rates) = _first(data, scale), _judging(data, scale)
        left, right = figure.subplots(1, 2, width_ratios=(2.6, 1))
        if rates:
            stable = first[first["lr"].isin(rates)]
            groups = {"KV shifting, earlier seeds": less_vanilla(stable, KV)} if scale in NEW_SEEDS else {}
            groups |= {"KV shifting, seeds of the claim": less_vanilla(runs, KV)}
            differences_by_rate(left, groups, {f"{arm} (mean)": less_vanilla(stable, arm) for arm in (FROZEN, UNIT)})
            left.legend(fontsize=9, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
        left.set(xlabel="learning rate", ylabel="held-out loss less vanilla's (nats a token)")
        diverged_by_rate(right, first[first["lr"] >= max(rates, default=0.0)], list(ARMS))
        right.legend(fontsize=9, loc="lower right", bbox_to_anchor=(1.05, 1.0))
        figure.suptitle(f"Below 0, KV shifting is better than vanilla ({scale} scale: two layers on text, no clipping)")
        return figure


def critical_rate(data: pd.DataFrame, *arms: str) -> float | None:
    """Return the lowest learning rate at which more than half the runs of any of the arms diverged, or None."""
    share = data[data["arm"].isin(arms)].groupby(["lr", "arm"])["diverged"].mean().groupby("lr").max()
    over = share[share > 0.5]
    return None if over.empty else float(over.index.to_numpy().min())


def _row(arm: str, run: "Run") -> dict[str, object]:
    """Return the row of one run."""
    seen = run.metrics["eval_loss"].to_numpy(dtype=float)
    finite = not run.diverged and bool(np.isfinite(seen).all())
    last = float(seen[-LAST:].mean()) if finite else float(np.log(run.config.model.d_vocab))
    least = float(np.nanmin(seen))
    frequencies = _frequencies(cast(TextTask, run.config.task))
    return {
        "arm": arm, "lr": run.config.lr, "seed": run.config.seed, "least": round(least, 6), "last": round(last, 6),
        "frequencies": round(frequencies, 6), "diverged": not finite or last >= frequencies,
    }  # fmt: skip


@lru_cache
def _frequencies(task: TextTask) -> float:
    from ihlab.measure.text import frequency_loss

    return frequency_loss(task)


def _losses(data: pd.DataFrame, arm: str, lr: float) -> "pd.Series[float]":
    """Return the last losses of an arm at a rate, by seed."""
    runs = data[(data["arm"] == arm) & (data["lr"] == lr)]
    return runs.set_index("seed")["last"].sort_index()


def _best_rate(data: pd.DataFrame, arm: str) -> float:
    """Return the rate at which the mean of an arm's last losses is lowest."""
    return cast(float, data[data["arm"] == arm].groupby("lr")["last"].mean().idxmin())


def _at_best(data: pd.DataFrame, arm: str) -> "pd.Series[float]":
    return _losses(data, arm, _best_rate(data, arm))


def _first(data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """Return the runs with the seeds that every arm has at every rate."""
    return data[data["seed"] < SEEDS[scale]]


def _judging(data: pd.DataFrame, scale: Scale) -> tuple[pd.DataFrame, list[float]]:
    """Return the runs and the learning rates of Figure 4b's claim."""
    runs = data[data["arm"].isin((VANILLA, KV)) & data["seed"].isin(NEW_SEEDS.get(scale, range(SEEDS[scale])))]
    diverged = runs.groupby("lr")["diverged"].any()
    rates = list(STABLE_RATES.get(scale, diverged.index[~diverged.astype(bool)]))
    return runs[runs["lr"].isin(rates)], rates


def less_vanilla(data: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Return an arm's last loss - vanilla's with the same seed: a row for each seed, a column for each rate."""
    last, vanilla = (
        data[data["arm"] == kind].pivot_table(index="seed", columns="lr", values="last") for kind in (arm, VANILLA)
    )
    return last - vanilla


def _on_average(data: pd.DataFrame, scale: Scale) -> Claim:
    """Judge Figure 4b by the mean over the stable rates. A diverged run counts with its `last` from the table."""
    runs, rates = _judging(data, scale)
    claim = partial(
        Claim,
        id="better_at_rates",
        statement=22,
        source="Section 4.3, Figure 4b",
        sentence="KV shifting achieves better results than vanilla at different learning rates.",
        declared="2026-11-26",
    )
    if not rates:
        return claim(why="At each rate of the grid some run of either diverges.")
    differences = less_vanilla(runs, KV).mean(axis="columns", skipna=False)
    of_which = f" with seeds 0 to {SEEDS[scale] - 1}" if scale in NEW_SEEDS else ""
    lost = int(runs["diverged"].sum())
    counted = f"; {lost} of these runs diverged and count with their last loss" if lost else ""
    return claim(
        measure="held-out loss at the end (nats a token), KV shifting less vanilla, by seed: mean over the "
        f"{len(rates)} learning rates at which no run of either diverged{of_which} ({min(rates):g} to {max(rates):g})"
        f"{counted}",
        estimate=stats.mean(differences.tolist()),
        threshold=0.0,
        right_side="below",
        seeds=len(differences),
    )


def _less_often(data: pd.DataFrame, scale: Scale, claim: "partial[Claim]", arm: str) -> Claim:
    """Judge whether an arm diverges less often than vanilla, at the lowest rate where most runs of either do."""
    name, sentence = STABLE[arm]
    source = "Section 4.3, Figure 4c" if arm == KV else "beside Figure 4c"
    claim = partial(claim, id=name, source=source, sentence=sentence, of_paper=arm == KV)
    if arm == KV:
        claim = partial(claim, statement=22)
    critical = critical_rate(data, VANILLA, arm)
    if critical is None:
        return claim(seeds=0, why="Neither diverges at any rate of the grid.")
    runs = data[data["lr"] == critical]
    vanilla, other = (runs.loc[runs["arm"] == kind, "diverged"].tolist() for kind in (VANILLA, arm))
    rose = (runs["last"] >= runs["least"] + RISE).groupby(runs["arm"]).sum()
    claim = partial(claim, threshold=0.0)
    now = claim(
        measure=f"share of runs that end no better than frequencies of tokens at {critical:g}, the lowest rate at "
        f"which most of one do: vanilla less {arm}",
        estimate=stats.share_difference(sum(vanilla), len(vanilla), sum(other), len(other)),
    )
    first = claim(
        measure=f"share of runs that end {RISE} nats above their own least loss there ({rose[VANILLA]} and "
        f"{rose[arm]} of {len(other)})",
        estimate=stats.share_difference(int(rose[VANILLA]), len(vanilla), int(rose[arm]), len(other)),
    )
    if at_floor(*(1 - float(np.mean(diverged)) for diverged in (vanilla, other))):  # fraction of runs that survive
        now = replace(now, why=f"All runs of both diverge at {critical:g}: which do so less often cannot be told.")
    return changed(now, first, scale, "2026-11-23: a run that learns more before it is lost has farther to rise")
