"""Figure 1: learning curves of induction, at various depths (a) and under the pressure of a small hidden size (b)."""

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import induction, stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, GIVEN, GIVEN_HEAD, KV1, LINES, SHAPES, V1, V2, V4, kv, vanilla
from ihlab.claims.learning_curves import final, learning_curve_table, plan, ratio_of_steps, steps_to
from ihlab.claims.rates import count_in_words
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLUE, ORANGE, new_figure, printed
from tasks import IGNORE

if TYPE_CHECKING:
    from ihlab.training.run import Run

NEAR_CHANCE = 0.1
"""An accuracy at most this far above guessing is "near chance"."""
NOT_FASTER = 0.8
"""Ratio of steps above which a curve is not faster. It is below 1 because exact equality cannot be shown."""

SPEEDS: dict[str, tuple[str, float, Literal["above", "below"], int | None, str]] = {
    "faster": (
        KV1, induction.MUCH_FASTER, "below", None,
        "KV shifting attention converges much faster than two-layer transformers.",
    ),
    "four_layers_no_faster": (
        V4, NOT_FASTER, "above", 9, "Increasing vanilla to 4 layers does not make the model learn induction faster.",
    ),
}  # fmt: skip
"""By claim: curve, threshold and side of the ratio of its steps to 90% to those of `V2`, statement and sentence."""

DECLARED_1A = "2026-11-26"
"""Date on which the claims with learned positions, and the seeds and sequences of Figure 1a, were declared."""
FLOOR = "2026-11-26: where no run of either model learns, nothing is compared"

PANELS = {"rope": "RoPE, as in the paper", "learned": "learned positions"}
"""The panels of Figure 1a, by `ModelConfig.positional`."""
SEEDS_1A = {"smoke": range(2), "laptop": range(16, 32), "gpu": range(8), "paper": range(3)}
"""A laptop has sixteen new seeds: with the first eight, the verdict on "perfectly" depended on one answer."""
ROWS_1A = 1024
"""Held-out sequences on a laptop: an accuracy of .99 is then known to .003."""

LEARNED = 0.9
"""A run has learned induction if its final accuracy is at least this."""
WIDE_MARGIN = 0.3
"""Difference that counts as "very poorly", as a fraction of runs or as an accuracy."""
COVERS = 0.5
"""A model does not cover the sequence if less than this fraction of its answers are tokens of the sequence."""


class Figure1a:
    """Accuracy on the first repeat of a sequence against training steps, with RoPE and with learned positions.

    All curves share one learning rate. `ihlab.studies.robustness` tunes the rate of each.
    """

    name = "figure1a"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan KV shifting with one layer, vanilla with one, two and four, and two layers with a clamped head.

        Four layers stop at 90%, because claims about them use only their steps.
        """
        run = induction.figure1_run(scale)
        run = run.replace(eval_rows=ROWS_1A) if scale == "laptop" else run
        planned = []
        for positional in PANELS:
            curves = {_curve(name, positional): {**fields, "positional": positional} for name, fields in DEPTHS.items()}
            given = {_curve(GIVEN, positional): curves[_curve(V2, positional)]}
            four = {name: curves.pop(name) for name in [_curve(V4, positional)]}
            for some, changes in (
                (curves, {}),
                (four, {"stop_at_accuracy": LEARNED}),
                (given, {"clamped": (GIVEN_HEAD,)}),
            ):
                stacked = scale == "gpu" and not changes.get("clamped")
                planned += plan(self.name, run.replace(**changes), some, SEEDS_1A[scale], stacked)
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run; `guess`: the accuracy of guessing another token of the sequence."""
        return learning_curve_table(trained).assign(guess=induction.guessing_accuracy(trained[0][1].config.task))

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge Section 3.2, "Various depth", with the paper's positions and with learned positions."""
        return [claim for positional in PANELS for claim in self._claims(data, positional)]

    def _claims(self, data: pd.DataFrame, positional: str) -> list[Claim]:
        guess, rows = float(data["guess"].iloc[0]), int(data["rows"].iloc[0])
        one, two, kv1 = (_curve(name, positional) for name in (V1, V2, KV1))
        paper = positional == "rope"
        claim = partial(
            Claim,
            setting={"positions": PANELS[positional].partition(",")[0]},
            source="section 3.2, Figure 1a" if paper else "Figure 1a with learned positions",
            of_paper=paper,
            seeds=int(data["seed"].nunique()),
            declared=DECLARED_1A,
        )
        where = PANELS[positional].partition(",")[0]
        return [
            claim(
                id=f"vanilla1_hard.{positional}",
                statement=1,
                sentence="It is difficult for a one-layer standard transformer to learn induction.",
                measure=f"final accuracy of vanilla, 1 layer, {where} (guessing another token of the row: {guess:.3f})",
                estimate=stats.mean_accuracy(final(data, one), rows),
                threshold=round(guess + NEAR_CHANCE, 4),
                right_side="below",
            ),
            *(
                claim(
                    id=f"{short}.{positional}",
                    statement=9,
                    sentence=f"{what} can perfectly learn the ability of induction.",
                    measure=f"final accuracy of {name}, {where} (lowest seed {min(final(data, curve)):.3f})",
                    estimate=stats.mean_accuracy(final(data, curve), rows),
                    threshold=0.99,
                )
                for short, what, name, curve in (
                    ("kv1_perfect", "1-layer KV shifting attention", KV1, kv1),
                    ("vanilla2_perfect", "The 2-layer transformer", V2, two),
                )
            ),
            *(
                claim(
                    id=f"{short}.{positional}",
                    statement=statement,
                    sentence=sentence,
                    measure=f"steps to 90% accuracy, {name.replace(',', '')} / vanilla 2 layers, {where} (both at "
                    f"{data['lr'].iloc[0]:g}; {_learners(data, curve)} and {_learners(data, two)} seeds get there)",
                    estimate=ratio_of_steps(data, curve, two),
                    threshold=threshold,
                    right_side=side,
                )
                for short, (name, threshold, side, statement, sentence) in SPEEDS.items()
                for curve in [_curve(name, positional)]
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw accuracy against steps: the paper's figure on the left, learned positions on the right."""
        figure = new_figure(9.6, 4.6)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (positional, title) in zip(panels, PANELS.items(), strict=True):
            lines = {_curve(name, positional): line for name, line in LINES.items()}
            learning_curves(axes, data, "step", "accuracy_first", lines)
            axes.axhline(float(data["guess"].iloc[0]), color="0.5", lw=1, ls=(0, (1, 3)), label="guessing")
            axes.set(title=title, xlabel="training step", ylim=(-0.02, 1.02))
        panels[0].set_ylabel("accuracy at the first repeat")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        seeds = data["seed"].nunique()
        figure.suptitle(f"Induction at various depths ({scale} scale; median of {seeds} seeds, band: all seeds)")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the median steps to 90% and the mean final accuracy of every curve."""
        rows = [
            (name, where.partition(",")[0], _steps(data, curve), f"{np.mean(final(data, curve)):.3f}")
            for positional, where in PANELS.items()
            for name in (KV1, V1, V2, GIVEN, V4)
            for curve in [_curve(name, positional)]
        ]
        return pd.DataFrame(rows, columns=["model", "positions", "median steps to 90%", "mean final accuracy"])


def _curve(name: str, positional: str) -> str:
    """Return the name of a curve in a panel. It names the position scheme only if it is not the paper's."""
    return name if positional == "rope" else f"{name}, {PANELS[positional]}"


def _learners(data: pd.DataFrame, curve: str) -> str:
    return count_in_words(steps_to(data, curve, LEARNED))


def _steps(data: pd.DataFrame, curve: str) -> str:
    median = float(np.median(steps_to(data, curve, LEARNED)))
    return f"{median:.0f}" if np.isfinite(median) else "never"


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
        """Judge Section 3.2, "Various width"."""
        n_params = data.groupby("curve")["n_params"].first()
        claim = partial(Claim, source="section 3.2, Figure 1b", declared="2026-11-22", seeds=len(final(data, kv("8"))))
        cover = final(data, vanilla("8"), "in_row")
        covered_by_two = final(data, vanilla("8, 2 heads"), "in_row")
        reached = [count_in_words(steps_to(data, curve, LEARNED)) for curve in (kv("8"), vanilla("8"))]
        return [
            *(row for name in induction.NARROW for row in _narrow_claims(data, scale, name, claim)),
            claim(
                id="not_even_covered",
                sentence="It even failed to cover up one of the answers mentioned in the previous text.",
                measure=f"share of runs of vanilla 2 layers, hidden size 8, 1 head, less than {COVERS:.0%} of whose "
                f"answers are tokens of the row (median {np.median(cover):.2f}; with 2 heads "
                f"{sum(x < COVERS for x in covered_by_two)} of {len(covered_by_two)} runs)",
                estimate=stats.share(sum(x < COVERS for x in cover), len(cover)),
                threshold=0.5,
            ),
            claim(
                id="narrow_faster",
                statement=10,
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
                id="parameters_double",
                sentence="The vanilla model has two times the parameters of the KV shifting one.",
                measure="parameters without embeddings, vanilla 2 layers / KV shifting 1 layer, at hidden size 8",
                estimate=stats.exact(float(n_params[vanilla("8")] / n_params[kv("8")])),
                threshold=1.9,
                declared="2026-11-21",
            ),
            claim(
                id="harder_when_narrower",
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
        """Draw one panel per shape; learned positions are in the second row."""
        figure = new_figure(9.6, 6.4)
        panels = figure.subplots(2, 3, sharey=True, sharex=True)
        names = ("8", "16", "32", "8, 2 heads", "8, learned positions", "8, 2 heads, learned positions")
        for name, axes in zip(names, panels.ravel(), strict=True):
            width, heads, positional = SHAPES[name]
            styles = {kv(name): Line(BLUE), vanilla(name): Line(ORANGE, "--")}
            learning_curves(axes, data, "step", "accuracy_first", styles)
            positions = "RoPE" if positional == "rope" else "learned positions"
            axes.set_title(f"hidden size {width}, {heads} head{'s' * (heads > 1)},\n{positions}", fontsize=10)
            axes.set_ylim(-0.02, 1.02)
            axes.axhline(data["guess"].iloc[0], color="0.5", lw=1, ls=(0, (1, 3)))
        handles = panels[0, 0].get_lines()
        keys = ["KV shifting, 1 layer", "vanilla, 2 layers", "guessing another token of the sequence"]
        figure.legend(handles, keys, loc="outside lower center", ncols=3)
        for axes in panels[1]:
            axes.set_xlabel("training step")
        figure.supylabel("accuracy at the first repeat", fontsize=10)
        figure.suptitle(f"Induction at various widths ({scale} scale; median of the seeds, band: all seeds)")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the number of runs that learned with each model of hidden size 8."""
        columns = ["heads, positions", KV1, V2, f"answers of {V2} that are in the sequence (median)"]
        rows = [
            (_heads(name), _counts(data, kv(name)), _counts(data, vanilla(name)), f"{np.median(covered):.0%}")
            for name in induction.NARROW
            for covered in [final(data, vanilla(name), "in_row")]
        ]
        return pd.DataFrame(rows, columns=[columns[0], *(f"learned: {name}" for name in columns[1:3]), columns[3]])


def _narrow_claims(data: pd.DataFrame, scale: Scale, name: str, claim: "partial[Claim]") -> list[Claim]:
    """Return the claims about hidden size 8 with one number of heads and position scheme. The paper has only RoPE."""
    _, heads, positional = SHAPES[name]
    own, where = (final(data, curve) for curve in (kv(name), vanilla(name))), _heads(name)
    shifted, poorly = own
    guess = float(data["guess"].iloc[0])
    if positional != "rope":
        claim = partial(claim, source="Figure 1b with learned positions", of_paper=False, declared=DECLARED_1A)
    both = "At hidden size 8 standard attention learns very poorly; KV shifting does not."
    named = f"{positional}.{heads}_head{'s' * (heads > 1)}"
    setting = dict(zip(("heads", "positions"), where.split(", "), strict=True))
    claim = partial(claim, statement=10, setting={name: setting[name] for name in ("positions", "heads")})
    share = claim(
        id=f"narrow.share.{named}",
        sentence=both,
        measure=f"share of runs that end at {LEARNED} or more, KV shifting 1 layer less vanilla 2 layers ({where}; "
        f"{_counts(data, kv(name))} less {_counts(data, vanilla(name))})",
        estimate=_difference(data, kv(name), vanilla(name)),
        threshold=WIDE_MARGIN,
    )
    if not sum(x >= LEARNED for x in (*shifted, *poorly)):
        why = f"No run of either model ends at {LEARNED} or more ({where})."
        share = changed(replace(share, measure="", estimate=None, threshold=math.nan, why=why), share, scale, FLOOR)
    accuracy = claim(
        id=f"narrow.accuracy.{named}",
        sentence=both,
        measure=f"final accuracy, KV shifting 1 layer less vanilla 2 layers, median over pairs of runs ({where})",
        estimate=stats.shift(shifted, poorly, stats.DIFFERENCE),
        threshold=WIDE_MARGIN,
    )
    if heads > 1:
        return [share, accuracy]
    chance = claim(
        id=f"narrow_vanilla.{named}",
        sentence="At hidden size 8 standard attention learns very poorly.",
        measure=f"share of runs of vanilla 2 layers ({where}) that end less than {NEAR_CHANCE} above guessing another "
        f"token of the sequence ({guess:.3f})",
        estimate=stats.share(sum(x < guess + NEAR_CHANCE for x in poorly), len(poorly)),
        threshold=0.5,
    )
    return [share, accuracy, chance]


def _heads(name: str) -> str:
    _, heads, positional = SHAPES[name]
    return f"{heads} head{'s' * (heads > 1)}, {'RoPE' if positional == 'rope' else 'learned positions'}"


def _learned(data: pd.DataFrame, curve: str) -> tuple[int, int]:
    """Count the runs of a curve that learned induction, and all its runs."""
    ends = final(data, curve)
    return sum(x >= LEARNED for x in ends), len(ends)


def _counts(data: pd.DataFrame, curve: str) -> str:
    learned, runs = _learned(data, curve)
    return f"{learned} of {runs}"


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
