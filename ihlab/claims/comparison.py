"""An experiment that compares attention variants in several settings, by their steps to 90% accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale
from ihlab.claims.rates import count_in_words, rate_in_words, ratio_in_words
from ihlab.claims.variants import (
    KV,
    RUN,
    TUNING,
    Cell,
    chosen_runs,
    of_cell,
    steps,
    tuning_runs,
    variants_table,
)
from ihlab.plots.style import new_figure, printed
from ihlab.plots.variants import steps_by_variant

if TYPE_CHECKING:
    from ihlab.training.run import Run

EQUAL = 1.25
"""The factor between two variants' steps up to which they are equal, and up to which neither is better."""
MUCH = 2.0
"""The factor from which one is much slower."""
HIGHER = 0.3
"""The lead in accuracy from which one learns what another does not."""

Kind = Literal["slower", "much slower", "not faster", "much faster", "equal", "less accurate"]


@dataclass(frozen=True)
class Question:
    """A sentence about two variants in one setting: `one` is `kind` than, or to, `other`.

    - "slower", "much slower": one needs more than `EQUAL`, `MUCH` times the other's steps;
    - "not faster": more than 1 / `EQUAL` of them; "much faster": less than 1 / `MUCH`;
    - "equal": the larger is less than `EQUAL` times the smaller;
    - "less accurate": the other's highest accuracy lies more than `HIGHER` above one's.
    """

    setting: str
    one: str
    kind: Kind
    other: str
    sentence: str
    source: str
    of_paper: bool = False
    declared: str = ""  # where it is not the date of the experiment's others


_LIMITS: dict[Kind, tuple[float, Literal["above", "below"]]] = {
    "slower": (EQUAL, "above"),
    "much slower": (MUCH, "above"),
    "not faster": (1 / EQUAL, "above"),
    "much faster": (1 / MUCH, "below"),
    "equal": (EQUAL, "below"),
    "less accurate": (HIGHER, "above"),
}


class Comparison:
    """Variants in settings, each at its own learning rate."""

    name: str
    title: str
    variants: tuple[str, ...]
    settings: tuple[str, ...]
    questions: tuple[Question, ...]
    declared: str
    many: tuple[str, ...] = ()
    """Settings with many seeds."""

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every variant in every setting; at smoke scale only those that a question names, and KV shifting."""
        every = [(variant, setting) for setting in self.settings for variant in self.variants]
        if scale != "smoke":
            return every
        asked = {(name, q.setting) for q in self.questions for name in (q.one, q.other, KV)}
        return [cell for cell in every if cell in asked]

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs: every rate in every cell."""
        return tuning_runs(self.cells(scale), scale)

    def follow(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> list[Planned]:
        """Plan every cell at its own rate."""
        return chosen_runs(trained, self.cells(scale), scale, self.many)

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather the table of `ihlab.claims.variants.variants_table`."""
        return variants_table(trained, scale)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the questions, whose measures and thresholds were fixed before the runs."""
        return [_claim(question, data, self.declared) for question in self.questions]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's steps to 90%, a panel for each setting."""
        runs = data[data["kind"] == RUN]
        settings = [setting for setting in self.settings if setting in set(runs["setting"])]
        columns = min(len(settings), 3)
        rows = -(-len(settings) // columns)
        figure = new_figure(3.6 * columns + 1.4, (0.24 * len(self.variants) + 1.3) * rows + 0.8)
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axes, setting in zip(panels, settings, strict=False):
            steps_by_variant(axes, runs[runs["setting"] == setting], self.variants)
            axes.set_title(setting, fontsize=10)
        for axes in panels[len(settings) :]:
            axes.remove()
        figure.suptitle(
            f"{self.title} ({scale} scale)\ndot: a seed, bar: median; at the right its learning rate", fontsize=11
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every variant's steps relative to KV shifting's, setting by setting."""
        parts = []
        for setting in self.settings:
            others = [other for other in self.variants if other != KV and steps(data, (other, setting))]
            relative = [f"{other} {_relative(data, other, setting)}" for other in others]
            parts += [f"{setting}: {', '.join(relative)}"] if relative else []
        told = "; ".join(parts)
        return f"Steps to 90% accuracy relative to those of KV shifting, each at its own learning rate: {told}."


def _relative(data: pd.DataFrame, variant: str, setting: str) -> str:
    """Return the ratio of a variant's steps to KV shifting's as text, "never" if none of its seeds gets there."""
    mine, kv = steps(data, (variant, setting)), steps(data, (KV, setting))
    return "never" if np.isinf(mine).all() else ratio_in_words(mine, kv, _horizon(data, setting))


def _horizon(data: pd.DataFrame, setting: str) -> float:
    return float(data.loc[data["setting"] == setting, "horizon"].max())


def ratio(data: pd.DataFrame, one: Cell, other: Cell) -> stats.Estimate:
    """Return the ratio of the steps to 90% of two cells, by Hodges and Lehmann."""
    return stats.ratio_of_times(steps(data, one), steps(data, other), _horizon(data, one[1]))


def _claim(question: Question, data: pd.DataFrame, declared: str) -> Claim:
    one, other = (question.one, question.setting), (question.other, question.setting)
    threshold, side = _LIMITS[question.kind]
    claim = partial(
        Claim,
        source=question.source,
        sentence=question.sentence,
        threshold=threshold,
        right_side=side,
        seeds=len(of_cell(data, one)),
        of_paper=question.of_paper,
        declared=question.declared or declared,
    )
    if question.kind == "less accurate":
        best, least = (of_cell(data, cell)["best"].tolist() for cell in (other, one))
        counts = [count_in_words(steps(data, cell)) for cell in (other, one)]
        measure = (
            f"highest accuracy, {_at(data, other)} less {_at(data, one)}, {question.setting} "
            f"({counts[0]} and {counts[1]} seeds get to 90%)"
        )
        return claim(measure=measure, estimate=stats.shift(best, least, stats.DIFFERENCE))
    counts = [count_in_words(steps(data, cell)) for cell in (one, other)]
    pair = (
        f"steps to 90% accuracy, {_at(data, one)} / {_at(data, other)}, {question.setting} "
        f"({counts[0]} and {counts[1]} seeds get there)"
    )
    estimate = ratio(data, one, other)
    if np.isnan(estimate.value):
        return claim(measure=pair, why="Neither gets there within the steps: nothing is compared.")
    if question.kind == "equal":
        return claim(measure=f"factor between the {pair}", estimate=stats.factor(estimate))
    return claim(measure=pair, estimate=estimate)


def _at(data: pd.DataFrame, cell: Cell) -> str:
    tuning = of_cell(data, cell, TUNING).rename(columns={"steps_to_90": "steps"})
    return f"{cell[0]} at {rate_in_words(float(of_cell(data, cell)['lr'].iloc[0]), tuning)}"
