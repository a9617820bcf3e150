"""Figure 1: learning curves of induction, at various depths (a) and under the pressure of a small hidden size (b)."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import induction, stats
from ihlab.claims.ask import Ask, Cell, Measured, Number, claims_of, named, of, ratio
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import (
    DEPTHS,
    GIVEN,
    GIVEN_HEAD,
    KV1,
    LINES,
    MUCH_FASTER,
    NARROW,
    SHAPES,
    V1,
    V2,
    V4,
    kv,
    vanilla,
)
from ihlab.claims.learning_curves import final, learning_curve_table, plan, steps_per_run, steps_to
from ihlab.claims.rates import median_in_words
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLUE, ORANGE, new_figure, printed
from tasks import IGNORE

if TYPE_CHECKING:
    from ihlab.training.run import Run

NEAR_CHANCE = 0.1
"""An accuracy at most this far above guessing is "near chance"."""
NOT_FASTER = 0.8
"""Ratio of steps above which a curve is not faster. It is below 1 because exact equality cannot be shown."""

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
        threshold = round(float(data["guess"].iloc[0]) + NEAR_CHANCE, 4)
        asks = [ask for positional in PANELS for ask in _depth_asks(positional, threshold)]
        return claims_of(asks, data, DECLARED_1A)

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


def _depth_asks(positional: str, near_chance: float) -> list[Ask]:
    """Return the questions of one panel of Figure 1a."""
    paper = positional == "rope"
    source = "section 3.2, Figure 1a" if paper else "Figure 1a with learned positions"
    setting = {"positions": PANELS[positional].partition(",")[0]}
    panel = partial(Ask, source=source, of_paper=paper, setting=setting)
    one, two, kv1, four = ({"curve": _curve(name, positional)} for name in (V1, V2, KV1, V4))

    def accuracy(cell: Cell) -> Number:
        def mean(data: pd.DataFrame) -> stats.Estimate:
            return stats.mean_accuracy(final(data, cell["curve"]), int(data["rows"].iloc[0]))

        return named(f"final accuracy of {cell['curve']}", mean)

    return [
        panel(
            f"vanilla1_hard.{positional}", "It is difficult for a one-layer standard transformer to learn induction.",
            accuracy(one), below=near_chance, statement=1,
        ),
        panel(
            f"kv1_perfect.{positional}",
            "1-layer KV shifting attention can perfectly learn the ability of induction.",
            accuracy(kv1), above=0.99, statement=9,
        ),
        panel(
            f"vanilla2_perfect.{positional}", "The 2-layer transformer can perfectly learn the ability of induction.",
            accuracy(two), above=0.99, statement=9,
        ),
        panel(
            f"faster.{positional}", "KV shifting attention converges much faster than two-layer transformers.",
            of(steps_per_run, ratio(kv1, two)), below=MUCH_FASTER,
        ),
        panel(
            f"four_layers_no_faster.{positional}",
            "Increasing vanilla to 4 layers does not make the model learn induction faster.",
            of(steps_per_run, ratio(four, two)), above=NOT_FASTER, statement=9,
        ),
    ]  # fmt: skip


def _steps(data: pd.DataFrame, curve: str) -> str:
    return median_in_words(steps_to(data, curve, LEARNED))


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
        asks = [ask for name in NARROW for ask in _narrow_asks(name, float(data["guess"].iloc[0]), scale)]
        return claims_of([*asks, *WIDTHS], data, "2026-11-22")

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
            for name in NARROW
            for covered in [final(data, vanilla(name), "in_row")]
        ]
        return pd.DataFrame(rows, columns=[columns[0], *(f"learned: {name}" for name in columns[1:3]), columns[3]])


def _learned_less(curve: str, other: str) -> Number:
    """Return the share of runs of one curve that learned induction, less that of another."""

    def number(data: pd.DataFrame) -> Measured:
        told = f"{curve} less {other} ({_counts(data, curve)} less {_counts(data, other)})"
        found = stats.share_difference(*_learned(data, curve), *_learned(data, other))
        return Measured(f"share of runs that end at {LEARNED} or more, {told}", found, len(final(data, kv("8"))))

    return number


def _share_below(column: str, limit: float, curve: str, what: str) -> Number:
    """Return the share of a curve's runs that end below a limit."""

    def number(data: pd.DataFrame) -> Measured:
        ends = final(data, curve, column)
        found = stats.share(sum(x < limit for x in ends), len(ends))
        return Measured(f"share of runs of {curve} {what} (median {np.median(ends):.2f})", found, len(ends))

    return number


def _narrow_asks(name: str, guess: float, scale: Scale) -> list[Ask]:
    """Return the questions about hidden size 8 with one number of heads and positions. The paper has only RoPE."""
    _, heads, positional = SHAPES[name]
    where = dict(zip(("heads", "positions"), _heads(name).split(", "), strict=True))
    id, setting = f"{positional}.{where['heads'].replace(' ', '_')}", {k: where[k] for k in ("positions", "heads")}
    ask = partial(Ask, source="section 3.2, Figure 1b", of_paper=True, statement=10, setting=setting)
    if positional != "rope":
        ask = partial(ask, source="Figure 1b with learned positions", of_paper=False, declared=DECLARED_1A)
    both = "At hidden size 8 standard attention learns very poorly; KV shifting does not."
    less = _learned_less(kv(name), vanilla(name))

    def learned(data: pd.DataFrame) -> Measured:
        """Compare nothing where no run learns."""
        if _learned(data, kv(name))[0] or _learned(data, vanilla(name))[0]:
            return less(data)
        why = f"No run of either model ends at {LEARNED} or more ({_heads(name)})."
        return less(data)._replace(measure="", estimate=None, why=why)

    def shift(data: pd.DataFrame) -> stats.Estimate:
        return stats.shift(final(data, kv(name)), final(data, vanilla(name)), stats.DIFFERENCE)

    accuracy = f"final accuracy, {kv(name)} less {vanilla(name)}, median over pairs of runs"
    chance = f"that end less than {NEAR_CHANCE} above guessing another token of the sequence ({guess:.3f})"
    asks = [
        ask(
            f"narrow.share.{id}", both, learned, above=WIDE_MARGIN, first=less if scale == "laptop" else None,
            changed=FLOOR,
        ),
        ask(f"narrow.accuracy.{id}", both, named(accuracy, shift, {"curve": kv(name)}), above=WIDE_MARGIN),
        ask(
            f"narrow_vanilla.{id}", "At hidden size 8 standard attention learns very poorly.",
            _share_below("accuracy_first", guess + NEAR_CHANCE, vanilla(name), chance), above=0.5,
        ),
    ]  # fmt: skip
    return asks[:2] if heads > 1 else asks


def _parameters(data: pd.DataFrame) -> stats.Estimate:
    n_params = data.groupby("curve")["n_params"].first()
    return stats.exact(float(n_params[vanilla("8")] / n_params[kv("8")]))


_width = partial(Ask, source="section 3.2, Figure 1b", of_paper=True)
WIDTHS = (
    _width(
        "not_even_covered", "It even failed to cover up one of the answers mentioned in the previous text.",
        _share_below("in_row", COVERS, vanilla("8"), f"less than {COVERS:.0%} of whose answers are tokens of the row"),
        above=0.5,
    ),
    _width(
        "narrow_faster", "KV shifting learns it faster at hidden size 8.",
        of(steps_per_run, ratio({"curve": kv("8")}, {"curve": vanilla("8")})), below=MUCH_FASTER,
        source="beside Figure 1b", of_paper=False, statement=10,
    ),
    _width(
        "parameters_double", "The vanilla model has two times the parameters of the KV shifting one.",
        named(f"parameters without embeddings, {vanilla('8')} / {kv('8')}", _parameters, {"curve": kv("8")}),
        above=1.9, declared="2026-11-21",
    ),
    _width(
        "harder_when_narrower",
        "The smaller the hidden size, the harder induction is for standard attention to learn.",
        _learned_less(vanilla("32"), vanilla("8, 2 heads")), above=0.0,
    ),
)  # fmt: skip


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
