"""An experiment that compares variants in several settings, by their steps to 90% accuracy.

A *cell* is a variant in a setting. Every cell is trained in two stages:

1. Tuning: every learning rate of the setting's grid, on seeds that no claim uses.
2. Claims: the learning rate that `fastest_rate` chooses, on the seeds of the claims.

Runs are looked up by their config, so a cell that two experiments compare is trained only once.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, at_floor
from ihlab.claims.experiment import Planned, Scale
from ihlab.claims.labels import KV
from ihlab.claims.rates import count_in_words, fastest_rate, rate_in_words, ratio_in_words, steps_table
from ihlab.plots.variants import steps_in_settings
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from ihlab.training.run import Run

Cell = tuple[str, str]
"""A variant and a setting, by their labels."""

TUNING, RUN = "tuning", "run"
TUNING_SEEDS, FEW_SEEDS, MANY_SEEDS, SMOKE_SEEDS = (100, 101), range(8), range(8, 40), range(2)
"""Seeds of the tuning runs, and of the claims.

At its fastest rate a variant's steps differ between seeds by a factor of two. Eight seeds against eight cannot tell a
ratio of 1 from 1.25. A setting has `MANY_SEEDS` if a question says that two variants are equal, or that one is not
better. The first eight seeds showed this need, so `MANY_SEEDS` excludes them.
"""

Kind = Literal["slower", "much slower", "not faster", "much faster", "equal", "less accurate"]
LIMITS: dict[Kind, tuple[float, Literal["above", "below"]]] = {
    "slower": (1.25, "above"),
    "much slower": (2.0, "above"),
    "not faster": (1 / 1.25, "above"),
    "much faster": (1 / 2, "below"),
    "equal": (1.25, "below"),
    "less accurate": (0.3, "above"),
}
"""Threshold of each kind of question, and the side on which its sentence holds.

The number is the ratio of steps, one / other. For "equal" it is that ratio or its inverse, whichever is larger. For
"less accurate" it is the difference between the highest accuracies, other - one.
"""


@dataclass(frozen=True)
class Question:
    """A sentence about two variants in one setting, such as `one` is slower than `other`. `kind` is the relation."""

    setting: str
    one: str
    kind: Kind
    other: str
    sentence: str
    source: str
    of_paper: bool = False
    declared: str = ""  # a date; "": the experiment's date


@dataclass(kw_only=True)
class Comparison(ABC):
    """Variants in settings, each at its own learning rate, and the questions about them."""

    name: str
    title: str
    variants: tuple[str, ...]
    settings: tuple[str, ...]
    questions: tuple[Question, ...]
    declared: str
    seeds: range = FEW_SEEDS
    many_seeds: tuple[str, ...] = ()  # the settings with MANY_SEEDS

    @abstractmethod
    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return the config of a cell's runs, before learning rate and seed are set."""

    @abstractmethod
    def grid(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the learning rates that are tried for a cell."""

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every variant in every setting; at smoke scale only KV shifting and the cells that questions name."""
        asked = {(name, q.setting) for q in self.questions for name in (q.one, q.other, KV)}
        cells = [(variant, setting) for setting in self.settings for variant in self.variants]
        return [cell for cell in cells if scale != "smoke" or cell in asked]

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs: every rate in every cell."""
        seeds = TUNING_SEEDS[:1] if scale == "smoke" else TUNING_SEEDS
        return [plan for cell in self.cells(scale) for plan in self._plan(cell, self.grid(cell, scale), seeds, scale)]

    def follow(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> list[Planned]:
        """Plan every cell at its own rate."""
        tuned, planned = self.gather(trained, scale), []
        for cell in self.cells(scale):
            seeds = SMOKE_SEEDS if scale == "smoke" else self.seeds_of(cell[1])
            planned += self._plan(cell, [_own_rate(tuned, cell)], seeds, scale)
        return planned

    def seeds_of(self, setting: str) -> range:
        """Return the seeds of the claims in a setting."""
        return MANY_SEEDS if setting in self.many_seeds else self.seeds

    def _plan(self, cell: Cell, rates: Sequence[float], seeds: Sequence[int], scale: Scale) -> list[Planned]:
        (variant, setting), config = cell, self.cell_config(cell, scale)
        planned = []
        for lr, seed in product(rates, seeds):
            name = re.sub("[^a-z0-9.]+", "-", f"variants {setting} {variant} {lr:g} {seed}".lower()).strip("-")
            run = config.replace(name=name, lr=lr, seed=seed)
            planned.append(Planned(f"{variant} | {setting}", run, stacked=not run.clamped))
        return planned

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Return a table with one row per run.

        - kind: "tuning", or "run" for the runs of the claims;
        - variant, setting, lr, seed, n_params;
        - steps_to_90: as in `steps_table`;
        - accuracy, best: the setting's accuracy (`RunConfig.stop_at_metric`) at the run's last evaluation, and its
          maximum over all evaluations;
        - horizon: the maximum number of steps of the run.
        """
        table = steps_table(trained)
        table[["variant", "setting"]] = [curve.split(" | ") for curve in table["curve"]]
        table["kind"] = np.where(table["seed"].isin(TUNING_SEEDS), TUNING, RUN)
        table["n_params"] = [(run.done or {}).get("n_params") for _, run in trained]
        accuracies = [run.metrics[run.config.stop_at_metric] for _, run in trained]
        table["accuracy"] = [round(float(accuracy.iloc[-1]), 6) for accuracy in accuracies]
        table["best"] = [round(float(accuracy.max()), 6) for accuracy in accuracies]
        columns = "kind variant setting lr seed n_params steps_to_90 accuracy best horizon"
        return table[columns.split()]

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the questions, whose measures and thresholds were fixed before the runs."""
        settings = set(data["setting"])  # smoke scale may lack some
        return [_judge(question, data, self.declared) for question in self.questions if question.setting in settings]

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's steps to 90%, one panel per setting."""
        key = "Dot: a seed. Bar: their median. Cross: not within the steps of training. Learning rates are tuned."
        title = f"{self.title}\n{key}"
        return steps_in_settings(data[data["kind"] == RUN], self.variants, self.settings, title)

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every variant's steps relative to KV shifting, setting by setting."""
        told = []
        for setting in self.settings:
            cells = [(variant, setting) for variant in self.variants if variant != KV]
            ratios = [f"{cell[0]} {ratio_text(data, cell, (KV, setting))}" for cell in cells if steps(data, cell)]
            told += [f"{setting}: {', '.join(ratios)}"] if ratios else []
        begin = "Steps to 90% accuracy relative to those of KV shifting, each at its own learning rate"
        return f"{begin}: {'; '.join(told)}."


def cell_rows(data: pd.DataFrame, cell: Cell, kind: str = RUN) -> pd.DataFrame:
    """Return the rows of a cell, by rate and seed."""
    variant, setting = cell
    mine = (data["variant"] == variant) & (data["setting"] == setting) & (data["kind"] == kind)
    return data[mine].sort_values(["lr", "seed"])


def steps(data: pd.DataFrame, cell: Cell) -> list[float]:
    """Return the steps to 90% of a cell's seeds; inf: never."""
    return cell_rows(data, cell)["steps_to_90"].astype(float).tolist()


def learned(data: pd.DataFrame, cell: Cell) -> float:
    """Return the fraction of a cell's seeds that reach 90%."""
    return float(np.isfinite(steps(data, cell)).mean())


def ratio(data: pd.DataFrame, one: Cell, other: Cell) -> stats.Estimate:
    """Return the Hodges-Lehmann ratio of steps to 90% between two cells of a setting."""
    return stats.ratio_of_times(steps(data, one), steps(data, other), _horizon(data, one[1]))


def _horizon(data: pd.DataFrame, setting: str) -> float:
    return float(data.loc[data["setting"] == setting, "horizon"].max())


def ratio_text(data: pd.DataFrame, one: Cell, other: Cell) -> str:
    """Return the ratio of steps of two cells of a setting as text, "never" if no seed of `one` reaches 90%."""
    taken = steps(data, one)
    return "never" if np.isinf(taken).all() else ratio_in_words(taken, steps(data, other), _horizon(data, one[1]))


def _tuning(data: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    return cell_rows(data, cell, TUNING).rename(columns={"steps_to_90": "steps"})


def cell_rate(data: pd.DataFrame, cell: Cell) -> str:
    """Return the learning rate of a cell's runs as text, with a note if it is at an edge of the cell's grid."""
    return rate_in_words(float(cell_rows(data, cell)["lr"].iloc[0]), _tuning(data, cell))


def _own_rate(data: pd.DataFrame, cell: Cell) -> float:
    """Return the rate at which a cell's tuning runs need the fewest steps; if none learns, the most accurate rate."""
    tuning = _tuning(data, cell)
    if np.isinf(tuning["steps"]).all():
        best = tuning.groupby("lr")["best"].mean()
        return float(best.index[int(best.to_numpy().argmax())])
    return fastest_rate(tuning)


def _judge(question: Question, data: pd.DataFrame, declared: str) -> Claim:
    one, other = (question.one, question.setting), (question.other, question.setting)
    threshold, side = LIMITS[question.kind]
    claim = partial(
        Claim,
        source=question.source,
        sentence=question.sentence,
        threshold=threshold,
        right_side=side,
        seeds=len(cell_rows(data, one)),
        of_paper=question.of_paper,
        declared=question.declared or declared,
    )
    if question.kind == "less accurate":
        high, low = (cell_rows(data, cell)["best"].tolist() for cell in (other, one))
        measure = f"highest accuracy, {_pair(data, other, 'less', one, 'get to 90%')}"
        return claim(measure=measure, estimate=stats.shift(high, low, stats.DIFFERENCE))
    measure = f"steps to 90% accuracy, {_pair(data, one, '/', other, 'get there')}"
    if at_floor(*(learned(data, cell) for cell in (one, other))):
        return claim(measure=measure, why="Neither gets there within the steps: nothing is compared.")
    estimate = ratio(data, one, other)
    if question.kind == "equal":
        return claim(measure=f"factor between the {measure}", estimate=stats.factor(estimate))
    return claim(measure=measure, estimate=estimate)


def _pair(data: pd.DataFrame, first: Cell, sign: str, second: Cell, succeed: str) -> str:
    """Return two variants with their rates, the setting, and how many seeds of each reach 90%."""
    rates = [cell_rate(data, cell) for cell in (first, second)]
    counts = [count_in_words(steps(data, cell)) for cell in (first, second)]
    variants = f"{first[0]} at {rates[0]} {sign} {second[0]} at {rates[1]}"
    return f"{variants}, {first[1]} ({counts[0]} and {counts[1]} seeds {succeed})"
