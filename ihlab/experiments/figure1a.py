"""Figure 1a: who learns induction, and how soon, at various depths."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.curves import final, learning_curve_table, plan
from ihlab.experiments.experiment import Planned, Scale
from ihlab.experiments.figure1 import base, guessing_accuracy
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLACK, BLUE, ORANGE, RED, new_figure, printed

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
SEEDS = {"smoke": 2, "laptop": 5, "gpu": 5, "paper": 3}

NEAR_CHANCE = 0.1
"""How far above guessing "near chance" reaches."""


class Figure1a:
    """Accuracy on the first repeat of a row against training steps."""

    name = "figure1a"

    def runs(self, scale: Scale) -> list[Planned]:
        """KV shifting with one layer; vanilla with one, two and four."""
        return plan(self.name, base(scale), CURVES, SEEDS[scale])

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Every evaluation of every run."""
        return learning_curve_table(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Section 3.2, "Various depth"."""
        guess = guessing_accuracy(base(scale).task)  # type: ignore[arg-type]
        horizon = float(data["step"].max())
        to_90 = {curve: _steps_to(data, curve, 0.9) for curve in CURVES}
        claim = partial(Claim, source="section 3.2, Figure 1a", seeds=int(data["seed"].nunique()))
        return [
            claim(
                sentence="It is difficult for a one-layer standard transformer to learn induction.",
                measure=f"final accuracy of vanilla, 1 layer (guessing a token of the row: {guess:.3f})",
                estimate=stats.mean(final(data, V1)),
                threshold=round(guess + NEAR_CHANCE, 4),
                right_side="below",
            ),
            *(
                claim(
                    sentence=f"{what} can perfectly learn the ability of induction.",
                    measure=f"final accuracy of {curve}",
                    estimate=stats.mean(final(data, curve)),
                    threshold=0.99,
                    right_side="above",
                )
                for what, curve in (("1-layer KV shifting attention", KV1), ("The 2-layer transformer", V2))
            ),
            claim(
                sentence="KV shifting attention converges much faster than two-layer transformers.",
                measure="steps to 90% accuracy, KV shifting 1 layer / vanilla 2 layers",
                estimate=stats.ratio_of_times(to_90[KV1], to_90[V2], horizon),
                threshold=1.0,
                right_side="below",
            ),
            claim(
                sentence="Increasing vanilla to 4 layers does not make the model learn induction faster.",
                measure="steps to 90% accuracy, vanilla 4 layers / vanilla 2 layers",
                estimate=stats.ratio_of_times(to_90[V4], to_90[V2], horizon),
                threshold=1.0,
                right_side="above",
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Against steps, as the paper does, and against training compute: depths differ in parameters."""
        figure = new_figure(9.5, 3.8)
        by_steps, by_compute = figure.subplots(1, 2, sharey=True)
        learning_curves(by_steps, data, "step", "accuracy_first", LINES)
        by_steps.set(xlabel="training step", ylabel="accuracy at the first repeat", ylim=(-0.02, 1.02))
        # 6 FLOPs per parameter and token (forward 2, backward 4), embeddings left out as in n_params.
        compute = data.assign(compute=6 * data["n_params"] * data["tokens"])
        learning_curves(by_compute, compute[compute["step"] > 0], "compute", "accuracy_first", LINES)
        by_compute.set(xlabel="training FLOPs, 6 × parameters × tokens", xscale="log")
        by_steps.legend(loc="center right")
        seeds = data["seed"].nunique()
        figure.suptitle(f"Induction at various depths ({scale} scale; median of {seeds} seeds, band: all seeds)")
        return figure


def _steps_to(data: pd.DataFrame, curve: str, threshold: float) -> list[float]:
    of_curve = data[data["curve"] == curve]
    return [stats.first_reach(run["step"], run["accuracy_first"], threshold) for _, run in of_curve.groupby("seed")]
