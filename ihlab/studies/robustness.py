"""Is Figure 1a's speed-up the rotary base's, the head count's or the learning rate's? An objection, answered.

Figure 1a compares one layer of KV shifting with two vanilla layers at one rotary base, one number of heads and one
learning rate. Here positions and heads are varied one at a time around it, a *setting* each, and in each setting each
curve is trained at the learning rate at which it learns soonest.

1. Tuning: every rate of a grid, on seeds that no claim uses.
2. The rate chosen by `fastest_rate` and, where that is another, Figure 1a's own ("common") rate, on the seeds of the
   claims.

Runs of both stages end as soon as they reach 90% accuracy, or after Figure 1a's steps: a rate is chosen for the
schedule under which it is judged. Measures, thresholds and the rule of choice were fixed before the runs, with one
exception. Steps after the rate falls do not count, as in Figure 1a: accuracy that rises there shows the schedule.
"""

from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, KV1, LINES, MUCH_FASTER, V2, induction_run, steps_at_constant_rate
from ihlab.claims.learning_curves import slug
from ihlab.claims.rates import (
    ACCURACY,
    count_in_words,
    fastest_rate,
    rate_in_words,
    ratio_in_words,
    steps_by,
    steps_table,
)
from ihlab.plots.steps import legend_keys, steps_by_setting
from ihlab.plots.style import new_figure, printed
from ihlab.training.config import RunConfig

CURVES = (KV1, V2)

AS_FIGURE1A, NO_POSITIONS = "as in Figure 1a", "no positions"
SETTINGS: dict[str, dict[str, object]] = {
    AS_FIGURE1A: {},
    "rotary base 100": {"rotary_base": 100.0},
    "ALiBi": {"positional": "alibi"},
    NO_POSITIONS: {"positional": "none"},
    "2 heads": {"n_heads": 2},
    "1 head": {"n_heads": 1},
}
"""What is altered in Figure 1a's model, one thing at a time."""

SMOKE_SETTINGS = (AS_FIGURE1A, NO_POSITIONS)

RATES = {
    "smoke": (1e-3, 4e-3),
    "laptop": (4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2),
    "gpu": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
    "paper": (1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3),
}
"""The grid of learning rates."""
TUNING_SEEDS = {"smoke": (100,), "laptop": (100, 101), "gpu": (100, 101), "paper": (100, 101)}

SEEDS = {"smoke": 2, "laptop": 6, "gpu": 6, "paper": 6}
"""Six against six: the fewest of which a rank test can decide one of this many claims."""
SHARE_SEEDS = {"smoke": 2, "laptop": 12, "gpu": 12, "paper": 12}
"""Without positions, where the share of seeds that learn is measured: of six, not even all would decide it."""

TUNING, OWN, COMMON = "tuning", "own rate", "common rate"
DECLARED = "2026-11-22"
CHANGED = "2026-11-23: what is learned while the rate falls does not count in Figure 1a either"

WITHOUT_POSITIONS: tuple[tuple[str, Literal["above", "below"], str], ...] = (
    (KV1, "above", "One layer of KV shifting needs no positions: it learns induction without any."),
    (V2, "below", "Two vanilla layers without positions do not learn induction within the steps."),
)
"""Curve, on which side of one half its fraction of seeds that learn is said to be, and the sentence."""


def settings(scale: Scale) -> dict[str, dict[str, object]]:
    """Return the settings of a scale and what each alters."""
    return {name: SETTINGS[name] for name in SMOKE_SETTINGS} if scale == "smoke" else SETTINGS


def seeds(scale: Scale, setting: str) -> range:
    """Return the seeds of the claims."""
    return range((SHARE_SEEDS if setting == NO_POSITIONS else SEEDS)[scale])


class Robustness:
    """Steps to 90% accuracy of one layer of KV shifting and of two vanilla layers, in several settings."""

    name = "robustness"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs: every rate in every setting."""
        run = induction_run(scale)
        return [
            _planned(run, setting, curve, lr, seed)
            for setting in settings(scale)
            for curve in CURVES
            for lr in RATES[scale]
            for seed in TUNING_SEEDS[scale]
        ]

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan each curve in each setting at its own rate, and at the common one where that is another."""
        tuned, run = self.gather(trained, scale), induction_run(scale)
        return [
            _planned(run, setting, curve, lr, seed)
            for setting in settings(scale)
            for curve in CURVES
            for lr in dict.fromkeys((fastest_rate(_tuning(tuned, setting, curve), run.lr), run.lr))
            for seed in seeds(scale, setting)
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather a row for each run, as of `steps_table`, with its setting.

        kind: "tuning", "own rate" or "common rate". Where the own rate is the common one, there are rows of "own rate"
        only.
        """
        table = steps_table(trained)
        names = table.pop("curve").str.rsplit(", ", n=1, expand=True)
        table.insert(0, "kind", [TUNING if seed in TUNING_SEEDS[scale] else COMMON for seed in table["seed"]])
        table.insert(1, "setting", names[1])
        table.insert(2, "curve", names[0])
        for setting in settings(scale):
            for curve in CURVES:
                own = fastest_rate(_tuning(table, setting, curve), induction_run(scale).lr)
                judged = _rows(table, setting, curve, COMMON)
                table.loc[judged.index[judged["lr"] == own], "kind"] = OWN
        return table

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether one layer of KV shifting is much faster in every setting, each curve at its own rate."""
        claim = partial(Claim, source="an objection to Figure 1a, answered", of_paper=False, declared=DECLARED)
        faster = [_faster(data, scale, claim, setting, label) for setting, label in _labels(scale).items()]
        without = [
            claim(
                sentence=sentence,
                measure=f"share of seeds that reach 90% accuracy within {_horizon(data):.0f} steps, {curve} at "
                f"{_rate(data, NO_POSITIONS, curve, _horizon(data))}, no positions",
                estimate=stats.share(*_learned(data, NO_POSITIONS, curve)),
                threshold=0.5,
                right_side=side,
                seeds=len(_steps(data, NO_POSITIONS, KV1)),
            )
            for curve, side, sentence in WITHOUT_POSITIONS
        ]
        return [*faster, *without]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's steps to 90% in every setting: filled at its own rate, hollow at the common one."""
        labels = {name: label.replace(", ", ",\n").replace(": ", ":\n") for name, label in _labels(scale).items()}
        constant = steps_at_constant_rate(scale, _horizon(data))
        shown = data[data["kind"] != TUNING].rename(columns={"kind": "rate"})
        shown["steps_to_90"] = steps_by(shown["steps_to_90"], constant)
        lines = {curve: LINES[curve] for curve in CURVES}
        figure = new_figure(max(7.4, 1.75 * len(labels)), 4.4)
        axes = figure.subplots()
        steps_by_setting(axes, shown, labels, lines, (OWN, COMMON), constant)
        common = f"at Figure 1a's rate, {induction_run(scale).lr:g}, where that is another"
        keys = legend_keys(lines, ("at its own fastest rate (number below)", common))
        figure.legend(handles=keys, loc="outside lower center", ncols=4 if len(labels) > 2 else 2, fontsize=9)
        figure.suptitle(
            f"Other positions, heads and rates ({scale} scale; dot: a seed, bar: median;\n"
            f"never: not while the learning rate is constant, up to step {constant})",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State how much faster in each setting, and which curves learn without positions."""
        constant = steps_at_constant_rate(scale, _horizon(data))
        ratios = [
            f"{ratio_in_words(*_waits(data, setting, constant), constant)} ({label})"
            for setting, label in _labels(scale).items()
        ]
        kv, vanilla = (count_in_words(_steps(data, NO_POSITIONS, curve)) for curve in CURVES)
        return (
            "Each at its own learning rate, one layer of KV shifting needs this part of the steps to 90% accuracy that "
            f"two vanilla layers need: {', '.join(ratios)}; without positions {kv} seeds of KV shifting and {vanilla} "
            f"of vanilla learn induction within {_horizon(data):.0f} steps."
        )


def _planned(run: RunConfig, setting: str, curve: str, lr: float, seed: int) -> Planned:
    """Return a run in a setting, altered from `run`. It is stacked, also because a diverged member stops no other."""
    name = slug(f"robustness-{setting}-{curve}-{lr:g}-{seed}")
    model = run.model.replace(**SETTINGS[setting], **DEPTHS[curve])
    config = run.replace(name=name, model=model, lr=lr, seed=seed, stop_at_accuracy=ACCURACY, checkpoints=2)
    return Planned(f"{curve}, {setting}", config, stacked=True)


def _rows(data: pd.DataFrame, setting: str, curve: str, kind: str = OWN) -> pd.DataFrame:
    return data[(data["setting"] == setting) & (data["curve"] == curve) & (data["kind"] == kind)]


def _steps(data: pd.DataFrame, setting: str, curve: str) -> list[float]:
    return _rows(data, setting, curve)["steps_to_90"].astype(float).tolist()


def _learned(data: pd.DataFrame, setting: str, curve: str) -> tuple[int, int]:
    """Count the seeds that reach the accuracy, and all seeds."""
    steps = _steps(data, setting, curve)
    return int(np.isfinite(steps).sum()), len(steps)


def _horizon(data: pd.DataFrame) -> float:
    return float(data.loc[data["kind"] == OWN, "horizon"].max())


def _waits(data: pd.DataFrame, setting: str, horizon: float) -> tuple[list[float], list[float]]:
    """Return the steps to 90% of one layer of KV shifting and of two vanilla layers; inf: not by `horizon`."""
    kv, vanilla = (steps_by(_rows(data, setting, curve)["steps_to_90"], horizon).tolist() for curve in CURVES)
    return kv, vanilla


def _faster(data: pd.DataFrame, scale: Scale, claim: "partial[Claim]", setting: str, label: str) -> Claim:
    """Judge whether one layer of KV shifting is much faster in a setting, each curve at its own rate."""
    much_faster = partial(
        claim,
        sentence="KV shifting attention converges much faster than two-layer transformers "
        f"({label}), each at its own learning rate.",
        threshold=MUCH_FASTER,
        right_side="below",
        seeds=len(_steps(data, setting, KV1)),
    )

    def within(limit: float) -> Claim:
        kv, vanilla = _waits(data, setting, limit)
        return much_faster(
            measure=f"steps to 90% accuracy within {limit:.0f}, KV shifting 1 layer at "
            f"{_rate(data, setting, KV1, limit)} / vanilla 2 layers at {_rate(data, setting, V2, limit)} "
            f"({count_in_words(kv)} and {count_in_words(vanilla)} seeds get there)",
            estimate=stats.ratio_of_times(kv, vanilla, limit),
        )

    declared, now = within(_horizon(data)), within(steps_at_constant_rate(scale, _horizon(data)))
    return now if now.estimate == declared.estimate else changed(now, declared, scale, CHANGED)


def _tuning(data: pd.DataFrame, setting: str, curve: str) -> pd.DataFrame:
    return _rows(data, setting, curve, TUNING).rename(columns={"steps_to_90": "steps"})


def _rate(data: pd.DataFrame, setting: str, curve: str, horizon: float) -> str:
    """Return a curve's own rate as text, with a note if it is at an edge of the grid or none learns by `horizon`."""
    own, tuning = float(_rows(data, setting, curve)["lr"].iloc[0]), _tuning(data, setting, curve)
    return rate_in_words(own, tuning.assign(steps=steps_by(tuning["steps"], horizon), horizon=horizon))


def _labels(scale: Scale) -> dict[str, str]:
    """Name each setting as in claims and pictures: Figure 1a's with what is varied."""
    model = induction_run(scale).model
    own = f"as in Figure 1a: rotary base {model.rotary_base:,.0f}, {model.n_heads} heads"
    return {setting: own if setting == AS_FIGURE1A else setting for setting in settings(scale)}
