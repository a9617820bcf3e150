"""Figure 1a: learning curves of induction at various depths."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale
from ihlab.claims.learning_curves import final, learning_curve_table, plan, ratio_of_steps, steps_to
from ihlab.claims.rates import count_in_words
from ihlab.plots.curves import Line, learning_curves, waiting_times
from ihlab.plots.style import BLACK, BLUE, ORANGE, RED, new_figure, printed
from ihlab.studies.figure1 import curves_base, guessing_accuracy

if TYPE_CHECKING:
    from ihlab.training.run import Run

KV1, V1, V2, V4 = "KV shifting, 1 layer", "vanilla, 1 layer", "vanilla, 2 layers", "vanilla, 4 layers"

CURVES: dict[str, dict[str, object]] = {
    KV1: {"attention": "kv_shift", "n_layers": 1},
    V1: {"n_layers": 1},
    V2: {"n_layers": 2},
    V4: {"n_layers": 4},
}
LINES = {KV1: Line(BLUE), V1: Line(BLACK, ":"), V2: Line(ORANGE, "--"), V4: Line(RED, "-.")}
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 3}

TUNED = (2e-3, 6.4e-2)
"""Lowest and highest learning rate of the tuning grid."""
FASTEST = {KV1: 6.4e-2, V2: 4e-3, V4: 1.6e-2}
"""Learning rate of the grid at which a curve learns soonest on all tuning seeds (laptop scale, docs/LOG.md)."""
OWN_RATE = ", own rate"

NEAR_CHANCE = 0.1
"""Largest accuracy above guessing that is "near chance"."""
MUCH_FASTER = 0.5
"""Ratio of steps below which a curve is "much faster"."""
NOT_FASTER = 0.8
"""Ratio of steps above which a curve is not faster: a margin, since equality can never be shown to the last step."""


class Figure1a:
    """Accuracy on the first repeat of a row against training steps."""

    name = "figure1a"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan KV shifting with one layer, and vanilla with one, two and four.

        At laptop scale the curves that learn are also trained at their own learning rates. Those runs only measure the
        steps to 90%, and stop there; so do the runs with four layers at either learning rate.
        """
        common = [
            Planned(planned.curve, planned.config.but(stop_at_accuracy=0.9) if planned.curve == V4 else planned.config)
            for planned in plan(self.name, curves_base(scale), CURVES, SEEDS[scale])
        ]
        if scale != "laptop":
            return common
        own = [
            Planned(
                planned.curve + OWN_RATE,
                planned.config.but(
                    name=f"{planned.config.name}-own-rate", lr=FASTEST[planned.curve], stop_at_accuracy=0.9
                ),
            )
            for planned in common
            if FASTEST.get(planned.curve, planned.config.lr) != planned.config.lr
        ]
        return common + own

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run; `guess`: the accuracy of guessing another token of the row."""
        return learning_curve_table(trained).assign(guess=round(guessing_accuracy(trained[0][1].config.task), 4))  # type: ignore[arg-type]

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
            *(self._speed(data, claim, own) for own in rates),
            *(self._depth(data, claim, own) for own in rates),
        ]

    def _speed(self, data: pd.DataFrame, claim: "partial[Claim]", own: bool) -> Claim:
        return claim(
            sentence="KV shifting attention converges much faster than two-layer transformers.",
            measure=f"steps to 90% accuracy, KV shifting 1 layer / vanilla 2 layers{_runs(data, own, KV1, V2)}",
            estimate=ratio_of_steps(data, at_rate(data, KV1, own), at_rate(data, V2, own)),
            threshold=MUCH_FASTER,
            right_side="below",
            declared="2026-11-22",
        )

    def _depth(self, data: pd.DataFrame, claim: "partial[Claim]", own: bool) -> Claim:
        return claim(
            sentence="Increasing vanilla to 4 layers does not make the model learn induction faster.",
            measure=f"steps to 90% accuracy, vanilla 4 layers / vanilla 2 layers{_runs(data, own, V4, V2)}",
            estimate=ratio_of_steps(data, at_rate(data, V4, own), at_rate(data, V2, own)),
            threshold=NOT_FASTER,
            declared="2026-11-22",
        )

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
            waiting_times(
                panels[2], _waits(data), LINES, ("common rate", "own rate, where another"), float(data["horizon"].max())
            )
            panels[2].set(title="steps to 90%", ylabel="training step")
        seeds = data["seed"].nunique()
        stops = "; four layers stop at 90%" if len(own) else ""
        figure.suptitle(f"Induction at various depths ({scale} scale; median of {seeds} seeds, band: all seeds{stops})")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State steps to 90% and final accuracies in one sentence."""
        to_90 = {curve: float(np.median(steps_to(data, curve, 0.9))) for curve in CURVES}
        ends = {curve: float(np.mean(final(data, curve))) for curve in (KV1, V1, V2)}
        return (
            f"One layer of KV shifting reaches 90% after {_steps(to_90[KV1])} (median), two vanilla layers after "
            f"{_steps(to_90[V2])}, four after {_steps(to_90[V4])}; the first two end at {ends[KV1]:.3f} and "
            f"{ends[V2]:.3f}, and one vanilla layer at {ends[V1]:.3f}, where guessing another token of the row is "
            f"right in {data['guess'].iloc[0]:.3f}."
        )


def _steps(median: float) -> str:
    return f"{median:.0f} steps" if np.isfinite(median) else "more steps than were trained"


def at_rate(data: pd.DataFrame, curve: str, own: bool) -> str:
    """Return the name of a curve at the common learning rate or at its own; one name if the two rates are equal."""
    return curve + OWN_RATE if own and curve + OWN_RATE in set(data["curve"]) else curve


def _runs(data: pd.DataFrame, own: bool, *curves: str) -> str:
    """Return the learning rates of two curves and how many seeds of each get to 90%, in brackets."""
    names = [at_rate(data, curve, own) for curve in curves]
    rates = [f"{data.loc[data['curve'] == name, 'lr'].iloc[0]:g}" for name in names]
    there = " and ".join(count_in_words(steps_to(data, name, 0.9)) for name in names)
    grid = " to ".join(f"{lr:g}" for lr in TUNED)
    edges = [f"{rate} (an edge)" if float(rate) in TUNED else rate for rate in rates]
    chosen = f"each at the rate, of a grid of {grid}, that is soonest for it: {' and '.join(edges)}"
    return f" ({chosen if own else f'both at {rates[0]}'}; {there} seeds get there)"


def _waits(data: pd.DataFrame) -> pd.DataFrame:
    """Return the steps to 90% of every run: curve, rate (common, or its own if that differs), steps."""
    rows = [
        (curve, rate, steps)
        for curve in CURVES
        for rate, own in (("common rate", False), ("own rate, where another", True))
        if not own or curve + OWN_RATE in set(data["curve"])
        for steps in steps_to(data, at_rate(data, curve, own), 0.9)
    ]
    return pd.DataFrame(rows, columns=["curve", "rate", "steps"])
