"""Do small initial embeddings keep two layers from learning induction, and do they explain KV shifting's gain?

An embedding reads one token, so its fan-in is 1, and Figure 1a initialises it as N(0, 1). Many models use a far smaller
standard deviation (Llama and GPT-2: 0.02). This study varies the standard deviation of the embeddings for one and two
layers of KV shifting and for two vanilla layers. The learning rate and all other weights are Figure 1a's. Runs of one
seed have the same initial embeddings up to that factor.

Runs end as soon as they reach 90% accuracy. They may take twice as many steps as those of Figure 1a. Otherwise, for a
curve that needs half of Figure 1a's steps, a slow-down by more than 2 could not be measured. Measures and thresholds
were fixed before the runs, to test what one seed of other shapes had shown: with embeddings of 0.02, two vanilla layers
learned nothing in 1500 steps at four learning rates, and one layer of KV shifting learned induction in 240.
"""

from functools import partial
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, KV1, LINES, MUCH_FASTER, V2, induction_run, steps_at_constant_rate
from ihlab.claims.learning_curves import slug
from ihlab.claims.rates import ACCURACY, median_in_words, ratio_in_words, steps_by, steps_table
from ihlab.plots.curves import Line
from ihlab.plots.steps import steps_by_width
from ihlab.plots.style import PAGE, SKY, new_figure, printed

KV2 = "KV shifting, 2 layers"
CURVES = {KV1: DEPTHS[KV1], KV2: {"attention": "kv_shift", "n_layers": 2}, V2: DEPTHS[V2]}
STYLES = {KV1: LINES[KV1], KV2: Line(SKY, "-."), V2: LINES[V2]}

SMALL, UNIT = 0.02, 1.0
"""Standard deviations: Llama's, and Figure 1a's at all scales except the paper's."""
STDS = {
    "smoke": (SMALL, UNIT),
    "laptop": (SMALL, 0.125, 0.35, UNIT),
    "gpu": (SMALL, 0.125, 0.35, UNIT),
    "paper": (SMALL, 0.125, 0.35, UNIT),
}
SEEDS = {"smoke": 2, "laptop": 6, "gpu": 6, "paper": 6}

MORE_STEPS = 2
"""Maximum number of steps, as a multiple of Figure 1a's."""

SLOWED = 2.0
"""Ratio of steps, small initial embeddings / N(0, 1), above which a curve is slowed down."""
DECLARED = "2026-11-22"
CHANGED = "2026-11-24: what is learned while the rate falls does not count in Figure 1a either"

SLOWED_BY: tuple[tuple[str, Literal["above", "below"], str], ...] = (
    (V2, "above", "Two vanilla layers learn induction several times later, or not at all, if embeddings start small."),
    (KV1, "below", "One layer of KV shifting does not need twice the steps if embeddings start small."),
    (KV2, "below", "Nor do two layers of KV shifting."),
)
"""Claims: curve, the side of `SLOWED` that is claimed, and the sentence."""


class Initialisation:
    """Steps to 90% accuracy against the standard deviation of the embeddings at the start."""

    name = "initialisation"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every curve with every standard deviation, all seeds."""
        run = induction_run(scale)
        run = run.replace(steps=MORE_STEPS * run.steps, stop_at_accuracy=ACCURACY, checkpoints=2)
        return [
            Planned(
                f"{curve}, embeddings {std:g}",
                run.replace(
                    name=slug(f"initialisation-{curve}-{std:g}-{seed}"),
                    model=run.model.replace(**changes, embed_std=std),
                    seed=seed,
                ),
                stacked=True,
            )
            for curve, changes in CURVES.items()
            for std in STDS[scale]
            for seed in range(SEEDS[scale])
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per run, as in `steps_table`, with its `embed_std`."""
        table = steps_table(trained)
        names = table["curve"].str.split(", embeddings ", expand=True)
        table["curve"] = names[0]
        table.insert(1, "embed_std", names[1].astype(float))
        return table

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge which curves small initial embeddings slow down, and whether KV shifting is much faster with either.

        Only steps before the learning rate decays count, as in Figure 1a. (As first declared, all steps counted.)
        """
        source = "a finding of the lab log (docs/LOG.md)"
        claim = partial(Claim, source=source, of_paper=False, declared=DECLARED, seeds=int(data["seed"].nunique()))

        def within(horizon: float) -> list[Claim]:
            slowed = [
                claim(
                    sentence=sentence,
                    measure=f"steps to 90% accuracy of {curve}, embeddings with standard deviation {SMALL:g} / "
                    f"{UNIT:g} (a run that does not get there counts as {horizon:.0f})",
                    estimate=_ratio(data, (curve, SMALL), (curve, UNIT), horizon),
                    threshold=SLOWED,
                    right_side=side,
                )
                for curve, side, sentence in SLOWED_BY
            ]
            faster = [
                claim(
                    sentence=f"KV shifting attention converges much faster than two-layer transformers ({start}).",
                    measure="steps to 90% accuracy, KV shifting 1 layer / vanilla 2 layers, embeddings with standard "
                    f"deviation {std:g} (not there: {horizon:.0f})",
                    estimate=_ratio(data, (KV1, std), (V2, std), horizon),
                    threshold=MUCH_FASTER,
                    right_side="below",
                )
                for std, start in ((UNIT, "embeddings that start as N(0, 1)"), (SMALL, "embeddings that start small"))
            ]
            return slowed + faster

        return [
            now if now.estimate == declared.estimate else changed(now, declared, scale, CHANGED)
            for now, declared in zip(within(_constant(data, scale)), within(_horizon(data)), strict=True)
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's steps to 90% against the standard deviation, and a line through the medians."""
        constant = _constant(data, scale)
        figure = new_figure(PAGE, 4.8)
        axes = figure.subplots()
        counted = data.assign(steps_to_90=steps_by(data["steps_to_90"], constant))
        steps_by_width(axes, counted, STYLES, constant)
        figure.legend(loc="outside lower center", ncols=len(STYLES))
        seeds = data["seed"].nunique()
        figure.suptitle(
            "Do small embeddings at the start delay induction?\n"
            f"Marker: one of {seeds} seeds. Line: median. Never: not at a constant rate, up to step {constant}.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the median steps for both standard deviations, and KV shifting's gain over vanilla for each."""
        constant = _constant(data, scale)
        large, small = (
            ", ".join(f"{median_in_words(_steps(data, curve, std, constant))} ({curve})" for curve in CURVES)
            for std in (UNIT, SMALL)
        )
        parts = [
            ratio_in_words(_steps(data, KV1, std, constant), _steps(data, V2, std, constant), constant)
            for std in (UNIT, SMALL)
        ]
        return (
            f"The median run reaches 90% accuracy at these steps (of {constant} before the learning rate falls): "
            f"{large} where embeddings start as N(0, 1), and {small} where they start with a standard deviation of "
            f"{SMALL:g}; so one layer of KV shifting needs {parts[0]} of the steps of two vanilla layers from the "
            f"former start and {parts[1]} from the latter."
        )


def _steps(data: pd.DataFrame, curve: str, std: float, horizon: float) -> list[float]:
    """Return a curve's steps to 90%; inf if more than `horizon`."""
    rows = data[(data["curve"] == curve) & (data["embed_std"] == std)]
    return steps_by(rows["steps_to_90"], horizon).tolist()


def _horizon(data: pd.DataFrame) -> float:
    return float(data["horizon"].max())


def _constant(data: pd.DataFrame, scale: Scale) -> int:
    return steps_at_constant_rate(scale, _horizon(data))


def _ratio(data: pd.DataFrame, one: tuple[str, float], other: tuple[str, float], horizon: float) -> stats.Estimate:
    """Return the ratio of two curves' steps to 90%, each at a standard deviation."""
    return stats.ratio_of_times(_steps(data, *one, horizon), _steps(data, *other, horizon), horizon)
