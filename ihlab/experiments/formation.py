"""How induction heads form: what changes phase first, the heads' attention, their alpha and beta, or the accuracy?

The question is the field's and ours, not the paper's. Four series of each run of Figure 1a, all of them in [0, 1]:

- the accuracy at the first repeat of a row;
- the prefix-matching score, a mean over the run's induction heads;
- |alpha2| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|), means over the same heads: 0.5 is no
  preference, 1 what an induction head needs, and neither moves when W_K or W_V is rescaled.

A run's induction heads are those whose prefix score is at least 0.5 at the end, or all where there is none. This looks
at where a head ends and never at when; the head that moves first would be early by choice. The one with the
highest score at the end would do for the prefix score, but it often starts next to where it ends: its alpha and beta
then have no way to go.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure, SubFigure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.experiment import Planned, Scale
from ihlab.experiments.figure1a import KV1, V1, V2, V4, Figure1a
from ihlab.experiments.figure2 import IS_INDUCTION
from ihlab.plots.formation import Gap, Mark, gaps, legend_keys, medians, timeline
from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, new_figure, printed

if TYPE_CHECKING:
    from ihlab.training.run import Run

ACCURACY, PREFIX, ALPHA, BETA = "accuracy", "prefix score", "alpha2 share", "beta1 share"
LOOKS = {
    ALPHA: Mark(BLUE, "o", "--"),
    PREFIX: Mark(GREEN, "s", "-."),
    ACCURACY: Mark(BLACK, "^"),
    BETA: Mark(ORANGE, "D", ":"),
}

LEARNERS, CONTROL = (KV1, V2, V4), V1
"""One layer of vanilla learns no induction: nothing must be found there."""

POINTS = ("start", "middle")
"""Of a change of phase; see `ihlab.interp.onset`."""

TOGETHER = 1.25
"""Changes up to one evaluation apart are together; middles come in halves, so the line is drawn below 1.5."""

ORDERS = (
    *((curve, PREFIX, ACCURACY) for curve in LEARNERS),
    *((KV1, weight, other) for weight in (ALPHA, BETA) for other in (PREFIX, ACCURACY)),
)
"""Curve and the two series whose changes are compared."""


class Formation:
    """Changes of phase of Figure 1a's runs, paired within each seed."""

    name = "formation"

    def runs(self, scale: Scale) -> list[Planned]:
        """The runs of Figure 1a."""
        return Figure1a().runs(scale)

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """One table of two kinds of row: points of a series, and its change of phase.

        A change has the fields of `ihlab.interp.onset.Onset`, start and middle also as numbers of evaluations, and
        `found`: "yes", "no" or "too few evaluations".
        """
        from ihlab.interp.onset import Onset

        parts = []
        for curve, run in trained:
            heads = induction_heads(run.metrics)
            facts: dict[str, Any] = {"curve": curve, "seed": run.config.seed, "heads": " ".join(heads)}
            for name, values in series(
                run.metrics, heads, run.config.model.n_heads // run.config.model.kv_heads
            ).items():
                points = pd.DataFrame({"step": run.metrics["step"], "value": values.round(6)})
                points["evaluation"] = np.arange(len(points))
                parts.append(points.assign(kind="point", series=name, **facts))
                change = pd.DataFrame([_change(points)])
                parts.append(change.assign(kind="change", series=name, **facts))
        first = ["kind", "curve", "seed", "heads", "series", "evaluation", "step", "value", "found"]
        numbers = [*(f"{point}_evaluation" for point in POINTS), *Onset.__dataclass_fields__]
        return pd.concat(parts, ignore_index=True).reindex(columns=[*first, *numbers])

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """What comes first, by the starts of the changes and by their middles; then the control."""
        return [*(claim for point in POINTS for claim in _order(data, point)), _control(data)]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Time-lines over curves, a column for each model; below, how far apart the changes are."""
        figure = new_figure(13.0, 10.0)
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.6, 1))
        self._draw_changes(top, data)
        for panel, point in zip(bottom.subplots(1, 2, sharey=True), POINTS, strict=True):
            gaps(panel, [_gap(data, order, point) for order in ORDERS], TOGETHER)
            panel.set_xlabel(f"{point} of the first less {point} of the second, in evaluations")
            panel.set_title(f"by the {point}s of the changes: left, the first is earlier; grey, together", fontsize=10)
        seeds = data["seed"].nunique()
        figure.suptitle(f"What changes phase first? ({scale} scale, {seeds} seeds; mark: start, bar: to the end)")
        return figure

    def _draw_changes(self, figure: SubFigure, data: pd.DataFrame) -> None:
        changes, points = (data[data["kind"] == kind] for kind in ("change", "point"))
        panels = figure.subplots(2, 4, sharex="col")
        for above, below, curve in zip(*panels, (*LEARNERS, CONTROL), strict=True):
            mine, walked = changes[changes["curve"] == curve], points[points["curve"] == curve]
            timeline(above, mine, LOOKS)
            medians(below, walked, LOOKS, rise=curve != CONTROL)
            last = walked["step"].max()
            whole = curve == CONTROL or mine["end"].isna().all()
            above.set(title=curve, xlim=(0, last if whole else min(last, 1.6 * mine["end"].max())))
            below.set_xlabel("training step")
        panels[0, 0].set_ylabel("seed")
        panels[1, 0].set_ylabel("share of its own way\n(median, band: all seeds)")
        panels[1, -1].set(ylabel="as measured", ylim=(-0.05, 1.05))
        figure.legend(handles=legend_keys(LOOKS), loc="outside lower center", ncols=len(LOOKS))


def induction_heads(metrics: pd.DataFrame) -> list[str]:
    """The heads, as "layer.head", whose prefix score is at least 0.5 at the end; all where there is none."""
    last = metrics.filter(regex=r"^prefix_").iloc[-1]
    chosen = last[last >= IS_INDUCTION] if (last >= IS_INDUCTION).any() else last
    return [str(name).removeprefix("prefix_") for name in chosen.index]


def series(metrics: pd.DataFrame, heads: Sequence[str], group: int) -> dict[str, pd.Series]:
    """What is compared, by name; alpha and beta only where there are any. `group` heads share an alpha and beta."""

    def mean(of: str, against: str) -> pd.Series:
        shares = []
        for head in heads:
            layer, index = head.split(".")
            mine, other = (metrics[f"{name}_{layer}.{int(index) // group}"].abs() for name in (of, against))
            shares.append(mine / (mine + other))
        return pd.concat(shares, axis=1).mean(axis=1)

    table = {ACCURACY: metrics["accuracy_first"], PREFIX: metrics[[f"prefix_{head}" for head in heads]].mean(axis=1)}
    if "alpha2_0.0" in metrics:
        table |= {ALPHA: mean("alpha2", "alpha1"), BETA: mean("beta1", "beta2")}
    return table


def _change(points: pd.DataFrame) -> dict[str, Any]:
    """The change of phase of one series as a row."""
    from ihlab.interp.onset import LEAST_POINTS, onset

    if len(points) < LEAST_POINTS:
        return {"found": "too few evaluations"}
    change = onset(points["step"], points["value"])
    if change is None:
        return {"found": "no"}
    numbers = {
        f"{point}_evaluation": float(np.interp(getattr(change, point), points["step"], points["evaluation"]))
        for point in POINTS
    }
    return {"found": "yes"} | {name: round(value, 6) for name, value in (numbers | vars(change)).items()}


def _table(data: pd.DataFrame, curve: str, column: str) -> pd.DataFrame:
    """A column of the changes of a curve: a row for each seed, a column for each series, NaN where none was found."""
    mine = data[(data["kind"] == "change") & (data["curve"] == curve)]
    return mine.pivot_table(index="seed", columns="series", values=column, dropna=False)


def _gap(data: pd.DataFrame, order: tuple[str, str, str], point: str) -> Gap:
    curve, first, second = order
    at = _table(data, curve, f"{point}_evaluation")
    estimate = stats.paired(at[first].tolist(), at[second].tolist())
    differences = (at[first] - at[second]).tolist()
    return Gap(f"{first} - {second}\n{curve}", differences, estimate.value, estimate.low, estimate.high)


def _order(data: pd.DataFrame, point: str) -> list[Claim]:
    claim = partial(Claim, seeds=int(data["seed"].nunique()), right_side="below")
    claims = []
    for curve in LEARNERS:
        at, steps = _table(data, curve, f"{point}_evaluation"), _table(data, curve, point)
        claims.append(
            claim(
                source="not the paper's: Olsson et al. 2022 (arXiv 2209.11895) find both at once in language models",
                sentence="The prefix-matching score rises before the accuracy or with it.",
                measure=f"{curve}: {point} of the prefix score's change - {point} of the accuracy's, in evaluations "
                f"({_in_steps(steps[PREFIX] - steps[ACCURACY])})",
                estimate=stats.paired(at[PREFIX].tolist(), at[ACCURACY].tolist()),
                threshold=TOGETHER,
            )
        )
    at, steps = _table(data, KV1, f"{point}_evaluation"), _table(data, KV1, point)
    earlier = {"at": np.minimum(at[PREFIX], at[ACCURACY]), "steps": np.minimum(steps[PREFIX], steps[ACCURACY])}
    for name, weight in (("alpha", ALPHA), ("beta", BETA)):
        claims.append(
            claim(
                source="not the paper's: our question",
                sentence=f"{name.capitalize()} moves before both the prefix score and the accuracy.",
                measure=f"{KV1}: {point} of {name}'s change - {point} of the earlier of the two, in evaluations "
                f"({_in_steps(steps[weight] - earlier['steps'])})",
                estimate=stats.paired(at[weight].tolist(), earlier["at"].tolist()),
                threshold=-TOGETHER,
            )
        )
    return claims


def _in_steps(differences: pd.Series) -> str:
    known = differences.dropna()
    return f"{known.median():+.0f} steps, {known.min():+.0f} to {known.max():+.0f}" if len(known) else "not known"


def _control(data: pd.DataFrame) -> Claim:
    mine = data[(data["kind"] == "change") & (data["curve"] == CONTROL)]
    judged = mine[mine["found"] != "too few evaluations"]
    found = judged[judged["found"] == "yes"]
    rise = float((found["after"] - found["before"]).abs().max()) if len(found) else 0.0
    largest = f" (the largest by {rise:.3f})" if len(found) else ""
    return Claim(
        source="control of the rule",
        sentence="A model that does not learn induction changes phase nowhere.",
        measure=f"{CONTROL}: changes found in {len(judged)} series{largest}",
        estimate=stats.exact(float(len(found))) if len(judged) else stats.Estimate(math.nan, -math.inf, math.inf),
        threshold=0.5,
        right_side="below",
        seeds=int(mine["seed"].nunique()),
    )
