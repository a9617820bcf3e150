"""MQAR, the control for induction: keys and values are disjoint, and a value comes right after its key.

There are two stages. Learning rates are chosen on tuning seeds at the smaller setting. Then each curve is trained at
its own rate, with other seeds, at every setting.
"""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import KV1, LINES, V1, V2
from ihlab.claims.learning_curves import learning_curve_table, plan, ratio_of_steps, steps_to
from ihlab.claims.rates import count_in_words, fastest_rate, median_in_words
from ihlab.model.config import ModelConfig
from ihlab.plots.curves import learning_curves
from ihlab.plots.style import PAGE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import MQARTask

CURVES: dict[str, dict[str, object]] = {KV1: {"attention": "kv_shift"}, V1: {}, V2: {"n_layers": 2}}
SEEDS = {"smoke": 2, "laptop": 5, "gpu": 5, "paper": 5}

WORDS = {KV1: "one layer of KV shifting", V1: "one vanilla layer", V2: "two vanilla layers"}

TUNED = {KV1: "kv-1-layer", V2: "vanilla-2-layers"}
"""Curves with a tuned learning rate, and the names of their runs. One vanilla layer never learns, so it uses V2's."""
TUNING_SEEDS = (100, 101)
RATES = {
    "smoke": (3e-3, 6e-3),
    "laptop": (1.5e-3, 3e-3, 6e-3, 1.2e-2),
    "gpu": (5e-4, 1e-3, 2e-3, 4e-3),
    "paper": (5e-4, 1e-3, 2e-3, 4e-3),
}

SMALLEST = {"64 positions, 4 pairs": (64, 4)}
LARGER = {"128 positions, 8 pairs": (128, 8)}
SETTINGS: dict[Scale, dict[str, tuple[int, int]]] = {
    "smoke": {"16 positions, 2 pairs": (16, 2)},
    "laptop": SMALLEST,
    "gpu": SMALLEST | LARGER,
    "paper": SMALLEST | LARGER,
}
"""Length and pairs of each panel, the smaller first.

They are the two smallest of Zoology (Arora et al. 2023, arXiv 2312.04927, Figure 2). The larger takes hours on two CPU
cores.
"""

GOAL = 0.9
"""Target accuracy at the first query of each sequence. Steps are counted up to it, and the run ends there."""

DECLARED = "2026-11-22"


def tuning_setting(scale: Scale) -> str:
    """Return the setting at which learning rates are chosen: the smaller one."""
    return next(iter(SETTINGS[scale]))


def recall_run(scale: Scale, length: int, pairs: int) -> RunConfig:
    """Return the run of one vanilla layer of Zoology's size. On a laptop the vocabulary is 512 instead of 8192."""
    vocab_size = {"smoke": 32, "laptop": 512, "gpu": 8192, "paper": 8192}[scale]
    task = MQARTask(vocab_size=vocab_size, length=length, pairs=pairs)
    model = ModelConfig(n_layers=1, d_model=64, n_heads=1, d_vocab=vocab_size, n_ctx=length)
    run = RunConfig(
        task=task, model=model, steps=2500, batch_size=64, eval_rows=512, checkpoints=2, stop_at_accuracy=GOAL
    )
    if scale == "smoke":
        return run.replace(model=model.replace(d_model=16), steps=20, batch_size=8, warmup=5, eval_rows=32)
    return run if scale == "laptop" else run.replace(steps=8000, batch_size=256, compile=True, precision="bf16")


def chosen_rates(data: pd.DataFrame, scale: Scale) -> dict[str, float]:
    """Return the learning rate of each curve, by `fastest_rate` from the tuning runs in the table."""
    tuning, chosen = data[data["kind"] == "tuning"], {}
    for arm in TUNED:
        curve = f"{arm}, {tuning_setting(scale)}"
        rates = tuning[tuning["curve"] == curve].groupby("lr")
        waits = [(lr, steps) for lr, runs in rates for steps in steps_to(runs, curve, GOAL)]
        horizon = float(tuning["horizon"].max())
        chosen[arm] = fastest_rate(pd.DataFrame(waits, columns=["lr", "steps"]).assign(horizon=horizon))
    return {arm: chosen.get(arm, chosen[V2]) for arm in CURVES}


class MQAR:
    """Accuracy at the first query of each sequence against training steps."""

    name = "mqar"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the grid of learning rates: every curve of `TUNED` with the tuning seeds, at the smaller setting."""
        setting = tuning_setting(scale)
        run = recall_run(scale, *SETTINGS[scale][setting])
        return [
            Planned(
                f"{arm}, {setting}",
                run.replace(
                    name=f"mqar-{name}-lr-{lr:g}-{seed}", model=run.model.replace(**CURVES[arm]), lr=lr, seed=seed
                ),
            )
            for arm, name in TUNED.items()
            for lr in RATES[scale]
            for seed in TUNING_SEEDS
        ]

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan every curve at its learning rate, at each setting."""
        rates = chosen_rates(self.gather(trained, scale), scale)
        return [
            Planned(f"{planned.curve}, {setting}", planned.config.replace(lr=rates[planned.curve]))
            for setting, (length, pairs) in SETTINGS[scale].items()
            for planned in plan(f"mqar-{length}", recall_run(scale, length, pairs), CURVES, SEEDS[scale])
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run; `kind` is "tuning" for runs that choose a learning rate, else "run"."""
        table = learning_curve_table(trained)
        return table.assign(kind=np.where(table["seed"].isin(TUNING_SEEDS), "tuning", "run"))

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Compare steps to `GOAL` where keys and values are disjoint and adjacent. The paper only says they differ.

        Vanilla with one layer may never reach `GOAL`. Its steps then count as more than the steps of training.
        """
        runs = data[data["kind"] == "run"]
        claim = partial(
            Claim,
            source="section 3.2 compares with MQAR",
            of_paper=False,
            seeds=int(runs["seed"].nunique()),
            threshold=1.0,
            right_side="below",
            declared=DECLARED,
        )
        return [
            claim(
                sentence=f"With disjoint, adjacent keys and values {WORDS[KV1]} learns sooner than {WORDS[other]} "
                f"({setting}).",
                measure=f"first evaluated step with accuracy {GOAL:g} at the first query of each row, {KV1} / {other} "
                f"(learning rates {_rate(data, KV1, setting)} and {_rate(data, other, setting)}, chosen on "
                f"{len(TUNING_SEEDS)} other seeds with {tuning_setting(scale)}; "
                f"{' and '.join(count_in_words(steps_to(runs, curve, GOAL)) for curve in curves)} get there within "
                f"{runs['horizon'].max()} steps)",
                estimate=ratio_of_steps(runs, *curves, GOAL),
            )
            for setting in SETTINGS[scale]
            for other in (V1, V2)
            for curves in ((f"{KV1}, {setting}", f"{other}, {setting}"),)
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw one panel per setting."""
        names, runs = SETTINGS[scale], data[data["kind"] == "run"]
        figure = new_figure(PAGE, 4.4)
        for axes, setting in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
            lines = {f"{arm}, {setting}": LINES[arm] for arm in CURVES}
            learning_curves(axes, runs, "step", "accuracy_first", lines)
            axes.axhline(GOAL, color="0.5", lw=1, ls=(0, (1, 3)), zorder=0)
            axes.set(xlabel="training step", ylim=(-0.02, 1.02))
            axes.set_title(setting, fontsize=10)
            axes.label_outer()
        figure.axes[0].set_ylabel("accuracy at the first query")
        labels = [f"{arm}, rate {_lr(data, arm, tuning_setting(scale)):g}" for arm in CURVES]
        handles = figure.axes[0].get_lines()[: len(CURVES)]
        figure.legend(handles, labels, loc="outside lower center", ncols=len(CURVES))
        seeds = runs["seed"].nunique()
        figure.suptitle(
            "How fast do models learn multi-query associative recall?\n"
            f"Line: median of {seeds} seeds. Band: all seeds. A run ends at an accuracy of {GOAL:g}.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the median steps to `GOAL` of every curve."""
        runs = data[data["kind"] == "run"]
        parts = [
            f"{setting}: "
            + ", ".join(f"{arm} {median_in_words(steps_to(runs, f'{arm}, {setting}', GOAL))}" for arm in CURVES)
            for setting in SETTINGS[scale]
        ]
        return (
            f"Median steps to an accuracy of {GOAL:g} at the first query, of {runs['seed'].nunique()} seeds and within "
            f"{runs['horizon'].max()} steps, each curve at its own learning rate ({V1} at that of {V2}): "
            f"{'; '.join(parts)}."
        )


def _lr(data: pd.DataFrame, arm: str, setting: str) -> float:
    return float(data.loc[(data["kind"] == "run") & (data["curve"] == f"{arm}, {setting}"), "lr"].iloc[0])


def _rate(data: pd.DataFrame, arm: str, setting: str) -> str:
    """Return a curve's learning rate as text. Note the curve it was tuned for, and if it is at an edge of the grid."""
    lr, grid = _lr(data, arm, setting), data.loc[data["kind"] == "tuning", "lr"]
    ends = {float(grid.min()): "the smallest tried", float(grid.max()): "the largest tried"}
    notes = ([] if arm in TUNED else [f"that of {V2}"]) + ([ends[lr]] if lr in ends else [])
    return f"{lr:g}" + (f" [{'; '.join(notes)}]" if notes else "")
