"""Formation of induction heads: what rises first, the heads' attention, their alpha and beta, or the accuracy?

The question is ours, not the paper's. The runs are Figure 1a's models at its rate, evaluated every few steps while they
learn. Each run gives four series in [0, 1], all on the task's own held-out sequences:

- the accuracy at the first repeat of a sequence, above guessing another of its tokens: (accuracy - guess) /
  (1 - guess), and 0 below the guess. Two vanilla layers learn this guess first, which needs no induction head;
- the attention from the first repeat to the positions of the answer (`ihlab.measure.metrics.answer_attention`),
  averaged over the run's induction heads;
- |alpha2| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|), averaged over the same heads. 0.5 means no
  preference, and an induction head needs 1. Neither changes when W_K or W_V is rescaled.

A run's induction heads are those whose attention to the answer is at least 0.5 at the end, or all heads if none has
that much. The choice depends only on where a head ends: choosing the head that moves first would bias the order.

Each series is smoothed by a running median of five. It has risen by a fraction where it last crosses that fraction of
the distance between its first and its last value (means over `AVERAGED` evaluations). There is no fit and no threshold
on a value.

Subtracting the guess was decided after the runs, which had shown that guessing alone is a fifth of the accuracy's rise.
Claims also state the result for the accuracy with guesses included, because that was declared (`Claim.first`).
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, KV1, V1, V2, guessing_accuracy, induction_run
from ihlab.claims.learning_curves import plan
from ihlab.plots.curves import Mark
from ihlab.plots.formation import Gap, gaps, legend_keys, medians, timeline
from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PAGE, new_figure, printed

if TYPE_CHECKING:
    from ihlab.training.run import Run

ACCURACY, ATTENTION = "accuracy above guessing", "attention to the answer"
AS_DECLARED = "accuracy"
"""The raw accuracy, guesses included, as declared for the comparison. It is a table column, not a series."""
ALPHA, BETA = "alpha2 share", "beta1 share"
STYLES = {
    ALPHA: Mark(BLUE, "o", "--"),
    ATTENTION: Mark(GREEN, "s", "-."),
    ACCURACY: Mark(BLACK, "^"),
    BETA: Mark(ORANGE, "D", ":"),
}

NAMES = {
    ALPHA: r"key: $|\alpha_2| / (|\alpha_1| + |\alpha_2|)$, of the token before",
    ATTENTION: "attention to the answer",
    ACCURACY: "accuracy (0: guessing in the sequence)",
    BETA: r"value: $|\beta_1| / (|\beta_1| + |\beta_2|)$, of the token itself",
}
SHORT = {ALPHA: "shifted key", ATTENTION: "attention", ACCURACY: "accuracy", BETA: "own value"}

CHANGED = "2026-11-22: a fifth of the accuracy's rise came from guessing a token of the sequence"
IS_INDUCTION = 0.5
"""A head is an induction head if its attention to the answer is at least this."""
LEARNERS, CONTROL = (KV1, V2), V1
"""Control: one vanilla layer does not learn induction, so nothing should be found there."""

SEEDS = {"smoke": 2, "laptop": 16}
STEPS = {KV1: 400, V2: 1600, V1: 1600}
"""Number of steps in a laptop's window. At smoke scale the window is the whole run."""
EVERY = {KV1: 2, V2: 4, V1: 10}
"""Steps between evaluations. V2 takes four times as long as KV1. The control's rule is made for few evaluations."""

PARTS = {"start": 0.2, "middle": 0.5}
"""Fractions of a series' rise at which it has started, and is half done."""
AVERAGED = 5
TOGETHER = 5.0
"""Changes at most this many steps apart count as simultaneous."""

ORDERS = (
    *((curve, ATTENTION, ACCURACY) for curve in LEARNERS),
    *((KV1, weight, other) for weight in (ALPHA, BETA) for other in (ATTENTION, ACCURACY)),
)
"""Curve and the two series whose changes are compared."""


class Formation:
    """Order of the rises, in one layer of KV shifting and in two of vanilla, paired within each seed."""

    name = "formation"
    scales = ("smoke", "laptop")

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the models of Figure 1a, evaluated densely over the steps in which they learn, at a constant rate."""
        run = induction_run(scale).replace(schedule="constant", eval_growth=0.0, checkpoints=2)
        run = run.replace(eval_rows=min(256, run.eval_rows))
        planned = []
        for curve in (*LEARNERS, CONTROL):
            windowed = run.replace(steps=run.steps if scale == "smoke" else STEPS[curve], eval_every=EVERY[curve])
            planned += plan(self.name, windowed, {curve: DEPTHS[curve]}, SEEDS[scale])
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather a row for each evaluation: curve, seed, heads, step and a column for each series.

        - `accuracy`: the accuracy with guesses included; `guess`: the accuracy of guessing;
        - `alarms`, in the last row of a control run: 1 if `ihlab.interp.onset` detects a phase change in the attention
          to the answer at its level of .01, else 0. (The control's accuracy never exceeds guessing.)
        """
        guess = guessing_accuracy(induction_run(scale).task)
        return pd.concat([_points(curve, run, guess) for curve, run in trained], ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge which series rises first, by the starts of the rises and by their middles."""
        return [claim for part in PARTS for claim in _order(data, scale, part)]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw when each series rises in the two models that learn, and the gap between two series within a seed."""
        figure = new_figure(PAGE, 6.4)
        top, bottom = cast("Sequence[SubFigure]", figure.subfigures(2, 1, height_ratios=(1, 1.15)))
        for axes, curve in zip(top.subplots(1, len(LEARNERS)), LEARNERS, strict=True):
            starts, middles = (changes(data, curve, part)[_drawn(data, curve)] for part in PARTS)
            timeline(axes, starts, middles, STYLES, SHORT)
            axes.set_title(curve, fontsize=11)
            axes.set_xlabel("training step")
        axes = bottom.subplots()
        gaps(axes, [_gap(data, order, part) for order in ORDERS for part in PARTS], TOGETHER)
        level = stats.paired(*[range(data["seed"].nunique())] * 2).confidence  # an exact interval may miss 95%
        axes.set_title(f"Which is earlier within a seed? Median and {level:.0%} interval. Grey: together.", fontsize=10)
        axes.set_xlabel("← the first is earlier         steps         the second is earlier →")
        figure.suptitle(
            f"Which part of an induction head rises first? {data['seed'].nunique()} seeds\n"
            f"Hollow: {PARTS['start']:.0%} of the rise. Filled: {PARTS['middle']:.0%}. Large: median. Small: seeds.",
            fontsize=11,
        )
        return figure

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the series over training, one panel per model."""
        return {"curves": _draw_curves(data)}

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return how far the middle of each rise is from that of the accuracy, as the median over seeds."""
        followed = [(curve, ATTENTION) for curve in LEARNERS] + [(KV1, ALPHA), (KV1, BETA)]
        at = {curve: changes(data, curve, "middle") for curve in LEARNERS}
        rows = [
            (curve, SHORT[name], f"{(at[curve][name] - at[curve][ACCURACY]).median():+.0f}") for curve, name in followed
        ]
        return pd.DataFrame(rows, columns=["model", "what rises", "steps after the accuracy (median)"])


@printed
def _draw_curves(data: pd.DataFrame) -> Figure:
    figure = new_figure(PAGE, 4.4)
    for axes, curve in zip(figure.subplots(1, 3, sharey=True), (*LEARNERS, CONTROL), strict=True):
        shown = data[data["curve"] == curve].melt(["seed", "step"], list(STYLES), "series", "value").dropna()
        medians(axes, shown, STYLES)
        axes.set_title(f"{curve},\nlearns no induction" if curve == CONTROL else curve, fontsize=10)
        axes.set(xlabel="training step", ylim=(-0.03, 1.03))
        axes.xaxis.set_major_locator(MaxNLocator(4))
    figure.axes[0].set_ylabel("value, as measured")
    figure.legend(handles=legend_keys(STYLES, NAMES), loc="outside lower center", ncols=2)
    figure.suptitle(
        f"The parts of an induction head over training\nLine: median of {data['seed'].nunique()} seeds. "
        "Band: half of them.",
        fontsize=11,
    )
    return figure


def induction_heads(metrics: pd.DataFrame) -> list[str]:
    """Return the heads ("layer.head") with attention to the answer of at least 0.5 at the end; all if none has it."""
    last = metrics.filter(regex=r"^answer_").iloc[-AVERAGED:].mean()
    chosen = last[last >= IS_INDUCTION] if (last >= IS_INDUCTION).any() else last
    return [str(name).removeprefix("answer_") for name in chosen.index]


def above_guessing(accuracy: pd.Series, guess: float) -> pd.Series:
    """Return the accuracy rescaled so that guessing is 0 and perfect is 1. Worse than guessing is also 0."""
    return ((accuracy - guess) / (1 - guess)).clip(lower=0)


def series(metrics: pd.DataFrame, heads: Sequence[str], group: int, guess: float) -> dict[str, pd.Series]:
    """Return the compared series by name. Alpha and beta, shared by `group` heads, are left out for vanilla."""

    def share(weight: str, other: str) -> pd.Series:
        shares = []
        for layer, head in (name.split(".") for name in heads):
            size, rest = (metrics[f"{column}_{layer}.{int(head) // group}"].abs() for column in (weight, other))
            shares.append(size / (size + rest))
        return pd.concat(shares, axis=1).mean(axis=1)

    table = {
        ACCURACY: above_guessing(metrics["accuracy_first"], guess),
        ATTENTION: metrics[[f"answer_{head}" for head in heads]].mean(axis=1),
    }
    if "alpha2_0.0" in metrics:
        table |= {ALPHA: share("alpha2", "alpha1"), BETA: share("beta1", "beta2")}
    return table


def crossing(steps: ArrayLike, values: ArrayLike, part: float) -> float:
    """Return the step after which a series stays beyond `part` of its rise; NaN for a series that does not change.

    The rise is from the first to the last value, each a mean over `AVERAGED` evaluations. Between evaluations the step
    is interpolated linearly.
    """
    t, v = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    first, last = v[:AVERAGED].mean(), v[-AVERAGED:].mean()
    if abs(last - first) < 1e-9:
        return float("nan")
    way = (pd.Series(v).rolling(5, center=True, min_periods=1).median().to_numpy() - first) / (last - first)
    below = np.flatnonzero(way < part)
    if not below.size:
        return float(t[0])
    i = int(below[-1])
    return float(np.interp(part, way[i : i + 2], t[i : i + 2])) if i + 1 < len(t) else float(t[-1])


def changes(data: pd.DataFrame, curve: str, part: str, names: Iterable[str] = STYLES) -> pd.DataFrame:
    """Return the crossings of a curve: a row for each seed, a column for each series of `names` that the curve has."""
    rows = data[data["curve"] == curve]
    return pd.DataFrame(
        {
            name: {seed: crossing(run["step"], run[name], PARTS[part]) for seed, run in rows.groupby("seed")}
            for name in names
            if rows[name].notna().all()
        }
    )


def _points(curve: str, run: "Run", guess: float) -> pd.DataFrame:
    metrics, model = run.metrics, run.config.model
    heads = induction_heads(metrics)
    values = series(metrics, heads, model.n_heads // model.kv_heads, guess)
    table = pd.DataFrame({"step": metrics["step"], **{name: x.round(5) for name, x in values.items()}})
    facts = pd.DataFrame({"curve": curve, "seed": run.config.seed, "heads": " ".join(heads)}, index=table.index)
    table = pd.concat([facts, table.reindex(columns=["step", *STYLES])], axis=1).assign(alarms=np.nan)
    if curve == CONTROL:
        table.loc[table.index[-1], "alarms"] = _alarms(table)
    return table.assign(accuracy=metrics["accuracy_first"].round(5), guess=guess)


def _alarms(table: pd.DataFrame) -> float:
    from ihlab.interp.onset import LEAST_POINTS, onset

    if len(table) < LEAST_POINTS:
        return np.nan
    return float(onset(table["step"], table[ATTENTION]) is not None)


def _drawn(data: pd.DataFrame, curve: str) -> list[str]:
    """Return the series of a curve, sorted by the step at which they have started to rise in half of the seeds."""
    return list(changes(data, curve, "start").median().sort_values().index)


def _gap(data: pd.DataFrame, order: tuple[str, str, str], part: str) -> Gap:
    curve, first, second = order
    at = changes(data, curve, part)
    estimate = stats.paired(at[first].tolist(), at[second].tolist())
    label = f"{SHORT[first]} or {SHORT[second]}?\n{curve}"
    return Gap(label, estimate.value, estimate.low, estimate.high, hollow=part == "start")


def _order(data: pd.DataFrame, scale: Scale, part: str) -> list[Claim]:
    """Judge the order by the start of each rise, or by its middle; also with the declared accuracy."""
    claim = partial(Claim, seeds=int(data["seed"].nunique()), right_side="below", declared="2026-11-22", of_paper=False)
    risen = {curve: changes(data, curve, part, (*STYLES, AS_DECLARED)) for curve in LEARNERS}
    where = f"{part} ({PARTS[part]:.0%})"

    def attention(curve: str, accuracy: str) -> Claim:
        return claim(
            id=f"attention_first.{'kv1' if curve == KV1 else 'vanilla2'}.{part}",
            setting={"model": curve, "point": part},
            source="Olsson et al. 2022 (arXiv 2209.11895) see both at the same time in language models",
            sentence="The heads' attention to the answer rises no later than the accuracy.",
            threshold=TOGETHER,
            measure=f"{curve}: step at the {where} of the attention's rise, minus that of the {accuracy}",
            estimate=stats.paired(risen[curve][ATTENTION].tolist(), risen[curve][accuracy].tolist()),
        )

    def share(weight: str, accuracy: str) -> Claim:
        at, name = risen[KV1], "the shifted key's fraction" if weight == ALPHA else "the own value's fraction"
        return claim(
            id=f"{'alpha' if weight == ALPHA else 'beta'}_first.{part}",
            setting={"point": part},
            source="a question of our own",
            sentence=f"{name.capitalize()} rises before both the attention to the answer and the accuracy.",
            threshold=-TOGETHER,
            measure=f"{KV1}: step at the {where} of the rise of {name}, minus the earlier of those of the attention "
            f"and the {accuracy}",
            estimate=stats.paired(at[weight].tolist(), np.minimum(at[ATTENTION], at[accuracy]).tolist()),
        )

    return [
        changed(judge(subject, ACCURACY), judge(subject, AS_DECLARED), scale, CHANGED)
        for judge, subjects in ((attention, LEARNERS), (share, (ALPHA, BETA)))
        for subject in subjects
    ]
