"""Figure 1: learning curves of induction, at various depths (a) and under the pressure of a small hidden size (b)."""

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import induction, stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import KV1, LINES, SHAPES, V1, V2, V4, kv, vanilla
from ihlab.claims.learning_curves import final, learning_curve_table, ratio_of_steps, steps_to
from ihlab.claims.rates import count_in_words
from ihlab.plots.curves import Line, learning_curves, waiting_times
from ihlab.plots.style import BLUE, ORANGE, new_figure, printed
from tasks import IGNORE

if TYPE_CHECKING:
    from ihlab.training.run import Run

TUNED = (2e-3, 6.4e-2)
"""Lowest and highest learning rate of the tuning grid."""
FASTEST = {KV1: 6.4e-2, V2: 4e-3, V4: 1.6e-2}
"""Learning rate of the grid at which a curve learns soonest, of those at which all tuning seeds learn on a laptop."""
OWN_RATE = ", own rate"
AT_COMMON, AT_OWN = "common rate", "own rate, where another"

NEAR_CHANCE = 0.1
"""Largest accuracy above guessing that is "near chance"."""
NOT_FASTER = 0.8
"""Ratio of steps above which a curve is not faster: a margin, since equality can never be shown to the last step."""

SPEEDS: tuple[tuple[str, float, Literal["above", "below"], str], ...] = (
    (KV1, induction.MUCH_FASTER, "below", "KV shifting attention converges much faster than two-layer transformers."),
    (V4, NOT_FASTER, "above", "Increasing vanilla to 4 layers does not make the model learn induction faster."),
)
"""Curve, threshold and side of its steps to 90% relative to those of `V2`, and the sentence."""

LEARNED = 0.9
"""Final accuracy from which a run has learned induction."""
WIDE_MARGIN = 0.3
"""Difference that counts as "very poorly", as a fraction of runs or as an accuracy."""
COVERS = 0.5
"""A model does not cover the row if less than this fraction of its answers are tokens of the row."""


class Figure1a:
    """Accuracy on the first repeat of a row against training steps."""

    name = "figure1a"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan KV shifting with one layer, and vanilla with one, two and four.

        At laptop scale the curves that learn are also trained at their own learning rates. Those runs only measure the
        steps to 90%, and stop there.
        """
        common = induction.depth_runs(scale)
        if scale != "laptop":
            return common
        own = [
            Planned(
                planned.curve + OWN_RATE,
                planned.config.replace(
                    name=f"{planned.config.name}-own-rate", lr=FASTEST[planned.curve], stop_at_accuracy=0.9
                ),
            )
            for planned in common
            if FASTEST.get(planned.curve, planned.config.lr) != planned.config.lr
        ]
        return common + own

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run; `guess`: the accuracy of guessing another token of the sequence."""
        return learning_curve_table(trained).assign(guess=induction.guessing_accuracy(trained[0][1].config.task))

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Claims of Section 3.2, "Various depth"."""
        guess, rows = float(data["guess"].iloc[0]), int(data["rows"].iloc[0])
        claim = partial(Claim, source="section 3.2, Figure 1a", seeds=int(data["seed"].nunique()))
        rates = [False, True] if KV1 + OWN_RATE in set(data["curve"]) else [False]
        return [
            claim(
                sentence="It is difficult for a one-layer standard transformer to learn induction.",
                measure=f"final accuracy of vanilla, 1 layer (guessing another token of the row: {guess:.3f})",
                estimate=stats.mean_accuracy(final(data, V1), rows),
                threshold=round(guess + NEAR_CHANCE, 4),
                right_side="below",
                declared="2026-11-21",
            ),
            *(
                claim(
                    sentence=f"{what} can perfectly learn the ability of induction.",
                    measure=f"final accuracy of {curve}",
                    estimate=stats.mean_accuracy(final(data, curve), rows),
                    threshold=0.99,
                    declared="2026-11-21",
                )
                for what, curve in (("1-layer KV shifting attention", KV1), ("The 2-layer transformer", V2))
            ),
            *(
                claim(
                    sentence=sentence,
                    measure=f"steps to 90% accuracy, {one.replace(',', '')} / vanilla 2 layers{_rates(data, own, one)}",
                    estimate=ratio_of_steps(data, _at_rate(data, one, own), _at_rate(data, V2, own)),
                    threshold=threshold,
                    right_side=side,
                    declared="2026-11-22",
                )
                for one, threshold, side, sentence in SPEEDS
                for own in rates
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw accuracy against steps, as in the paper, and against compute; then steps to 90% at either rate."""
        common, own = data[~data["curve"].str.endswith(OWN_RATE)], data[data["curve"].str.endswith(OWN_RATE)]
        figure = new_figure(14.0 if len(own) else 9.5, 4.3)
        panels = figure.subplots(1, 3 if len(own) else 2, width_ratios=[1.2, 1.2, 1] if len(own) else None)
        by_steps, by_compute = panels[:2]
        learning_curves(by_steps, common, "step", "accuracy_first", LINES)
        by_steps.set(xlabel="training step", ylabel="accuracy at the first repeat", ylim=(-0.02, 1.02))
        # 6 FLOPs per parameter and token (forward 2, backward 4), embeddings left out as in n_params.
        compute = common.assign(compute=6 * common["n_params"] * common["tokens"])
        learning_curves(by_compute, compute[compute["step"] > 0], "compute", "accuracy_first", LINES)
        by_compute.set(xlabel="training FLOPs, 6 × parameters × tokens", xscale="log", ylim=(-0.02, 1.02))
        guess = float(data["guess"].iloc[0])
        for axes in (by_steps, by_compute):
            axes.axhline(guess, color="0.5", lw=1, ls=(0, (1, 3)), label="guessing another token of the row")
        figure.legend(*by_steps.get_legend_handles_labels(), loc="outside lower center", ncols=5)
        if len(own):
            waiting_times(panels[2], _waits(data), LINES, (AT_COMMON, AT_OWN), float(data["horizon"].max()))
            panels[2].set(title="steps to 90%", ylabel="training step")
        seeds = data["seed"].nunique()
        stops = "; four layers stop at 90%" if len(own) else ""
        figure.suptitle(f"Induction at various depths ({scale} scale; median of {seeds} seeds, band: all seeds{stops})")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State steps to 90% and final accuracies in one sentence."""
        to_90 = {curve: float(np.median(steps_to(data, curve, 0.9))) for curve in LINES}
        ends = {curve: float(np.mean(final(data, curve))) for curve in (KV1, V1, V2)}
        return (
            f"One layer of KV shifting reaches 90% after {_steps(to_90[KV1])} (median), two vanilla layers after "
            f"{_steps(to_90[V2])}, four after {_steps(to_90[V4])}; the first two end at {ends[KV1]:.3f} and "
            f"{ends[V2]:.3f}, and one vanilla layer at {ends[V1]:.3f}, where guessing another token of the row is "
            f"right in {data['guess'].iloc[0]:.3f}."
        )


def _steps(median: float) -> str:
    return f"{median:.0f} steps" if np.isfinite(median) else "more steps than were trained"


def _at_rate(data: pd.DataFrame, curve: str, own: bool) -> str:
    """Return the name of a curve at the common learning rate or at its own; one name if the two rates are equal."""
    return curve + OWN_RATE if own and curve + OWN_RATE in set(data["curve"]) else curve


def _rates(data: pd.DataFrame, own: bool, curve: str) -> str:
    """Return the learning rates of a curve and of `V2`, and how many seeds of each get to 90%, in brackets."""
    names = [_at_rate(data, name, own) for name in (curve, V2)]
    rates = [f"{data.loc[data['curve'] == name, 'lr'].iloc[0]:g}" for name in names]
    learned = " and ".join(count_in_words(steps_to(data, name, 0.9)) for name in names)
    grid = " to ".join(f"{lr:g}" for lr in TUNED)
    edges = [f"{rate} (an edge)" if float(rate) in TUNED else rate for rate in rates]
    chosen = f"each at the rate, of a grid of {grid}, that is soonest for it: {' and '.join(edges)}"
    return f" ({chosen if own else f'both at {rates[0]}'}; {learned} seeds get there)"


def _waits(data: pd.DataFrame) -> pd.DataFrame:
    """Return the steps to 90% of every run: curve, rate (common, or its own if that differs), steps."""
    rows = [
        (curve, rate, steps)
        for curve in LINES
        for rate, name in ((AT_COMMON, curve), (AT_OWN, curve + OWN_RATE))
        for steps in steps_to(data, name, 0.9)
    ]
    return pd.DataFrame(rows, columns=["curve", "rate", "steps"])


class Figure1b:
    """KV shifting with one layer against vanilla with two, twice the parameters, at hidden sizes 8, 16 and 32."""

    name = "figure1b"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the two curves of each panel."""
        return induction.width_runs(scale)

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run.

        - `in_row`, in the last row of a run: the fraction of its answers at first repeats that are tokens of the
          sequence so far, right or wrong;
        - `guess`: the accuracy of guessing another token of the sequence.
        """
        table = learning_curve_table(trained, lambda _, run: {"in_row": in_row(run)})
        return table.assign(guess=induction.guessing_accuracy(trained[0][1].config.task))

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Claims of Section 3.2, "Various width"."""
        n_params = data.groupby("curve")["n_params"].first()
        guess = float(data["guess"].iloc[0])
        claim = partial(Claim, source="section 3.2, Figure 1b", declared="2026-11-22", seeds=len(final(data, kv("8"))))
        poorly, cover = final(data, vanilla("8")), final(data, vanilla("8"), "in_row")
        covered_by_two = final(data, vanilla("8, 2 heads"), "in_row")
        reached = [count_in_words(steps_to(data, curve, LEARNED)) for curve in (kv("8"), vanilla("8"))]
        return [
            *(
                claim(
                    sentence="At hidden size 8 standard attention learns very poorly; KV shifting does not.",
                    measure=f"share of runs that end at {LEARNED} or more, KV shifting 1 layer less vanilla 2 layers "
                    f"({_heads(name)}; {_counts(data, kv(name))} less {_counts(data, vanilla(name))}"
                    f"{_floor(data, name)})",
                    estimate=_difference(data, kv(name), vanilla(name)),
                    threshold=WIDE_MARGIN,
                )
                for name in induction.NARROW
            ),
            *(
                claim(
                    sentence="At hidden size 8 standard attention learns very poorly; KV shifting does not.",
                    measure=f"final accuracy, KV shifting 1 layer less vanilla 2 layers, median over pairs of runs "
                    f"({_heads(name)})",
                    estimate=stats.shift(final(data, kv(name)), final(data, vanilla(name)), stats.DIFFERENCE),
                    threshold=WIDE_MARGIN,
                    declared="2026-11-21",
                )
                for name in induction.NARROW
            ),
            claim(
                sentence="At hidden size 8 standard attention learns very poorly.",
                measure=f"share of runs of vanilla 2 layers, 1 head, that end less than {NEAR_CHANCE} above guessing "
                f"another token of the row ({guess:.3f})",
                estimate=stats.share(sum(x < guess + NEAR_CHANCE for x in poorly), len(poorly)),
                threshold=0.5,
            ),
            claim(
                sentence="It even failed to cover up one of the answers mentioned in the previous text.",
                measure=f"share of runs of vanilla 2 layers, hidden size 8, 1 head, less than {COVERS:.0%} of whose "
                f"answers are tokens of the row (median {np.median(cover):.2f}; with 2 heads "
                f"{sum(x < COVERS for x in covered_by_two)} of {len(covered_by_two)} runs)",
                estimate=stats.share(sum(x < COVERS for x in cover), len(cover)),
                threshold=0.5,
            ),
            claim(
                source="beside Figure 1b",
                of_paper=False,
                sentence="KV shifting learns it faster at hidden size 8.",
                measure="steps to 90% accuracy, KV shifting 1 layer / vanilla 2 layers, 1 head "
                f"({reached[0]} and {reached[1]} seeds get there)",
                estimate=ratio_of_steps(data, kv("8"), vanilla("8"), LEARNED),
                threshold=induction.MUCH_FASTER,
                right_side="below",
            ),
            claim(
                sentence="The vanilla model has two times the parameters of the KV shifting one.",
                measure="parameters without embeddings, vanilla 2 layers / KV shifting 1 layer, at hidden size 8",
                estimate=stats.exact(float(n_params[vanilla("8")] / n_params[kv("8")])),
                threshold=1.9,
                declared="2026-11-21",
            ),
            claim(
                sentence="The smaller the hidden size, the harder induction is for standard attention to learn.",
                measure=f"share of runs of vanilla 2 layers that end at {LEARNED} or more, hidden size 32 less hidden "
                f"size 8, 2 heads ({_counts(data, vanilla('32'))} less {_counts(data, vanilla('8, 2 heads'))}; KV "
                f"shifting: {_counts(data, kv('32'))} less {_counts(data, kv('8, 2 heads'))})",
                estimate=_difference(data, vanilla("32"), vanilla("8, 2 heads")),
                threshold=0.0,
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw one panel per shape."""
        figure = new_figure(12.5, 4.0)
        panels = figure.subplots(1, len(SHAPES), sharey=True)
        n_params = data.groupby("curve")["n_params"].first()
        for (name, (width, heads)), axes in zip(SHAPES.items(), panels, strict=True):
            styles = {kv(name): Line(BLUE), vanilla(name): Line(ORANGE, "--")}
            learning_curves(axes, data, "step", "accuracy_first", styles)
            sizes = f"{n_params[kv(name)]:,} and {n_params[vanilla(name)]:,} parameters"
            seeds = len(final(data, kv(name)))
            axes.set_title(f"hidden size {width}, {heads} head{'s' * (heads > 1)}\n{sizes}; {seeds} seeds", fontsize=10)
            axes.set(xlabel="training step", ylim=(-0.02, 1.02))
            axes.axhline(data["guess"].iloc[0], color="0.5", lw=1, ls=(0, (1, 3)))
        handles = panels[0].get_lines()
        names = ["KV shifting, 1 layer", "vanilla, 2 layers", "guessing another token of the row"]
        figure.legend(handles, names, loc="outside lower center", ncols=3)
        panels[0].set_ylabel("accuracy at the first repeat")
        figure.suptitle(f"Induction at various widths ({scale} scale; median of the seeds, band: all seeds)")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the number of runs that learned in one sentence."""
        cover = float(np.median(final(data, vanilla("8"), "in_row")))
        two = [float(np.median(final(data, curve))) for curve in (kv("8, 2 heads"), vanilla("8, 2 heads"))]
        return (
            f"At hidden size 8 with one head {_counts(data, kv('8'))} runs of one KV shifting layer end at "
            f"{LEARNED:.0%} or more and {_counts(data, vanilla('8'))} of two vanilla layers (with two heads "
            f"{_counts(data, kv('8, 2 heads'))} and {_counts(data, vanilla('8, 2 heads'))}, at {two[0]:.2f} and "
            f"{two[1]:.2f} in the median); of the one-head vanilla model's answers {cover:.0%} (median) are tokens of "
            "the row at all."
        )


def _heads(name: str) -> str:
    heads = SHAPES[name][1]
    return f"{heads} head{'s' * (heads > 1)}"


def _learned(data: pd.DataFrame, curve: str) -> tuple[int, int]:
    """Count the runs of a curve that learned induction, and all its runs."""
    ends = final(data, curve)
    return sum(x >= LEARNED for x in ends), len(ends)


def _counts(data: pd.DataFrame, curve: str) -> str:
    learned, runs = _learned(data, curve)
    return f"{learned} of {runs}"


def _floor(data: pd.DataFrame, name: str) -> str:
    """Say what a difference of shares can tell where neither curve of a panel learns."""
    learned = _learned(data, kv(name))[0] + _learned(data, vanilla(name))[0]
    return "" if learned else ": a floor, which speaks against the sentence's second half alone"


def _difference(data: pd.DataFrame, curve: str, other: str) -> stats.Estimate:
    return stats.share_difference(*_learned(data, curve), *_learned(data, other))


def in_row(run: "Run") -> float:
    """Return the fraction of a model's answers at first repeats that are tokens of the sequence so far, right or wrong.

    It is measured on the run's own held-out sequences.
    """
    import torch

    from ihlab.measure.batches import EVAL_SEED, draw

    batch = draw(run.config.task, EVAL_SEED, "eval", 0, run.config.eval_rows)
    rows, first = np.arange(len(batch.inputs)), (batch.answers != IGNORE).argmax(axis=1)
    with torch.no_grad():
        logits = run.model()(torch.from_numpy(batch.inputs.copy()))
    answers = logits[rows, first].argmax(dim=-1).numpy()
    seen = np.arange(batch.inputs.shape[1]) <= first[:, None]
    return round(float(((batch.inputs == answers[:, None]) & seen).any(axis=1).mean()), 6)
