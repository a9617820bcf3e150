"""Figure 1b: induction under the pressure of a small hidden size."""

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
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLUE, ORANGE, new_figure, printed
from ihlab.studies.figure1 import curves_base, guessing_accuracy, in_row
from ihlab.studies.figure1a import MUCH_FASTER, NEAR_CHANCE

if TYPE_CHECKING:
    from ihlab.training.run import Run

SHAPES = {"8": (8, 1), "8, 2 heads": (8, 2), "16": (16, 2), "32": (32, 2)}
"""Hidden size and heads of each panel, by name."""
NARROW = ("8", "8, 2 heads")
STACKED = (*NARROW, "16")
"""Panels whose runs are trained as one stacked model: faster, once that is compiled."""

SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 3}
NARROW_SEEDS = {"smoke": 2, "laptop": 16, "gpu": 16, "paper": 3}
"""Seeds at hidden size 8, where two-layer vanilla learns in some runs only."""

LEARNED = 0.9
"""Final accuracy from which a run has learned induction."""
WIDE_MARGIN = 0.3
"""Difference that counts as "very poorly", as a share of runs or as an accuracy."""
COVERS = 0.5
"""A model does not cover the row if less than this share of its answers are tokens of the row."""


def kv(name: str) -> str:
    """Name the curve of a panel's one-layer KV shifting model."""
    return f"KV shifting, 1 layer, hidden size {name}"


def vanilla(name: str) -> str:
    """Name the curve of a panel's two-layer vanilla model."""
    return f"vanilla, 2 layers, hidden size {name}"


NARROW_LR = 1.6e-2
"""Learning rate, best of a grid for two-layer vanilla at laptop scale (docs/LOG.md); paper scale has the paper's."""


class Figure1b:
    """KV shifting with one layer against vanilla with two, twice the parameters, at hidden sizes 8, 16 and 32."""

    name = "figure1b"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan two curves per panel; narrow models are trained stacked."""
        common = curves_base(scale)
        if scale != "paper":
            common = common.but(lr=NARROW_LR, weight_decay=0.0, steps=common.steps * 3 // 4)
        planned = []
        for name, (width, heads) in SHAPES.items():
            shape = {"d_model": width, "n_heads": heads, "init_std": None}
            curves: dict[str, dict[str, object]] = {
                kv(name): {**shape, "attention": "kv_shift", "n_layers": 1},
                vanilla(name): {**shape, "n_layers": 2},
            }
            seeds = NARROW_SEEDS if name in NARROW else SEEDS
            runs = plan(self.name, common, curves, seeds[scale])
            planned += [Planned(p.curve, p.config, stacked=name in STACKED) for p in runs]
        return planned

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run.

        `in_row`, at a run's last evaluation: the share of its answers at first repeats that are tokens of the row so
        far, right or wrong; `guess`: the accuracy of guessing another token of the row.
        """
        table = learning_curve_table(trained)
        covered = {(curve, run.config.seed): in_row(run) for curve, run in trained}
        last = ~table.duplicated(["curve", "seed"], keep="last")
        table["in_row"] = [
            covered[curve, seed] if is_last else np.nan
            for curve, seed, is_last in zip(table["curve"], table["seed"], last, strict=True)
        ]
        return table.assign(guess=round(guessing_accuracy(trained[0][1].config.task), 4))  # type: ignore[arg-type]

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
                for name in NARROW
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
                for name in NARROW
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
                threshold=MUCH_FASTER,
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
    learned, of = _learned(data, curve)
    return f"{learned} of {of}"


def _floor(data: pd.DataFrame, name: str) -> str:
    """Say what a difference of shares can tell where neither curve of a panel learns."""
    learned = _learned(data, kv(name))[0] + _learned(data, vanilla(name))[0]
    return "" if learned else ": a floor, which speaks against the sentence's second half alone"


def _difference(data: pd.DataFrame, curve: str, other: str) -> stats.Estimate:
    return stats.share_difference(*_learned(data, curve), *_learned(data, other))
