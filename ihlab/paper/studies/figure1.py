"""Figure 1: learning curves of induction, at various depths (a) and under the pressure of a small hidden size (b)."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure, printed
from ihlab.recipes import induction
from ihlab.recipes.induction import KV1, LINES, MUCH_FASTER, SHAPES, V1, V2, V4, kv, panels, vanilla
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, claims_of, named, of, ratio
from ihlab.study.claim import Claim
from ihlab.study.experiment import SCALES, Planned, Scale, Trained
from ihlab.study.learning_curves import final, learning_curve_table, steps_per_run, steps_to
from ihlab.study.rates import median_in_words
from tasks import IGNORE

if TYPE_CHECKING:
    from ihlab.training.run import Run

NEAR_CHANCE = 0.1
"""An accuracy at most this far above guessing is "near chance"."""
NOT_FASTER = 0.8
"""Ratio of steps above which a curve is not faster. It is below 1 because exact equality cannot be shown."""

DECLARED = "2026-11-27"
"""Date on which the seeds were declared. Questions and thresholds are those of 2026-11-22 and 2026-11-26."""
FLOOR = "2026-11-26: where no run of either model learns, nothing is compared"

POSITIONS = {"rope": "RoPE", "learned": "learned positions"}
"""Position schemes by `ModelConfig.positional`. The paper's is RoPE; learned positions are our own question."""

AXES = {"xlabel": "training step", "ylabel": "accuracy at the first repeat"}

LEARNED = 0.9
"""A run has learned induction if its final accuracy is at least this."""
WIDE_MARGIN = 0.3
"""Difference that counts as "very poorly", as a fraction of runs or as an accuracy."""
COVERS = 0.5
"""A model does not cover the sequence if less than this fraction of its answers are tokens of the sequence."""


class Figure1:
    """One of the two figures, with the paper's positions (RoPE), or with learned positions under a name of its own."""

    name = ""

    def __init__(self, positional: str = "rope") -> None:
        self.positional = positional
        self.scales = SCALES
        if positional != "rope":
            self.name, self.scales = f"{self.name}_{positional}", ("smoke", "laptop")


class Figure1a(Figure1):
    """Accuracy on the first repeat of a sequence against training steps, at various depths.

    All curves share one learning rate. `ihlab.paper.studies.robustness` tunes the rate of each.
    """

    name = "figure1a"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan KV shifting with one layer, vanilla with one, two and four."""
        return induction.depth_runs(scale, self.positional)

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run; `guess`: the accuracy of guessing another token of the sequence."""
        return learning_curve_table(trained).assign(guess=induction.guessing_accuracy(trained[0][1].config.task))

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge Section 3.2, "Various depth"."""
        threshold = round(float(data["guess"].iloc[0]) + NEAR_CHANCE, 4)
        return claims_of(_depth_asks(self.positional, threshold), data, DECLARED)

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw accuracy against steps."""
        figure = new_figure(PAGE, 4.6)
        axes = figure.subplots()
        learning_curves(axes, data, "step", "accuracy_first", LINES)
        axes.axhline(float(data["guess"].iloc[0]), color="0.5", lw=1, ls=(0, (1, 3)), label="guessing")
        axes.set(xlabel="training step", ylabel="accuracy at the first repeat", ylim=(-0.02, 1.02))
        axes.legend(loc="center right")
        figure.suptitle(
            f"How many layers does induction need? {POSITIONS[self.positional]}, {scale} scale\n"
            "Line: median of the seeds. Band: all seeds. Runs of four layers end at 90%.",
            fontsize=11,
        )
        return figure

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw accuracy against steps, to explore."""
        from ihlab.plots import interactive

        title = (
            f"How many layers does induction need? {POSITIONS[self.positional]}, {scale} scale<br>"
            "<sup>A line per seed. Runs of four layers end at 90%. Dotted: guessing.</sup>"
        )
        figure = interactive.curves(data, "step", "accuracy_first", lines=LINES, title=title, **AXES)
        return figure.add_hline(float(data["guess"].iloc[0]), line={"color": "#777777", "dash": "dot", "width": 1})

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the seeds, the median steps to 90% and the mean final accuracy of every curve."""
        rows = [
            (curve, len(ends), median_in_words(steps_to(data, curve, LEARNED)), f"{np.mean(ends):.3f}")
            for curve in (KV1, V1, V2, V4)
            for ends in [final(data, curve)]
        ]
        return pd.DataFrame(rows, columns=["model", "seeds", "median steps to 90%", "mean final accuracy"])


def _depth_asks(positional: str, near_chance: float) -> list[Ask]:
    """Return the questions of Figure 1a."""
    paper = positional == "rope"
    source = "section 3.2, Figure 1a" if paper else "Figure 1a with learned positions"
    ask = partial(Ask, source=source, of_paper=paper, setting={"positions": POSITIONS[positional]})
    one, two, kv1, four = ({"curve": name} for name in (V1, V2, KV1, V4))

    def accuracy(cell: Cell) -> Number:
        def mean(data: pd.DataFrame) -> stats.Estimate:
            return stats.mean_accuracy(final(data, cell["curve"]), int(data["rows"].iloc[0]))

        return named(f"final accuracy of {cell['curve']}", mean, cell)

    return [
        ask(
            f"vanilla1_hard.{positional}", "It is difficult for a one-layer standard transformer to learn induction.",
            accuracy(one), below=near_chance, statement=1,
        ),
        ask(
            f"kv1_perfect.{positional}",
            "1-layer KV shifting attention can perfectly learn the ability of induction.",
            accuracy(kv1), above=0.99, statement=9,
        ),
        ask(
            f"vanilla2_perfect.{positional}", "The 2-layer transformer can perfectly learn the ability of induction.",
            accuracy(two), above=0.99, statement=9,
        ),
        ask(
            f"faster.{positional}", "KV shifting attention converges much faster than two-layer transformers.",
            of(steps_per_run, ratio(kv1, two)), below=MUCH_FASTER, statement=9,
        ),
        ask(
            f"four_layers_no_faster.{positional}",
            "Increasing vanilla to 4 layers does not make the model learn induction faster.",
            of(steps_per_run, ratio(four, two)), above=NOT_FASTER, statement=9,
        ),
    ]  # fmt: skip


class Figure1b(Figure1):
    """KV shifting with one layer against vanilla with two, twice the parameters, at hidden sizes 8, 16 and 32."""

    name = "figure1b"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the two curves of each panel."""
        return induction.width_runs(scale, self.positional)

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
        narrow = [name for name in panels(self.positional) if SHAPES[name][0] == 8]
        asks = [ask for name in narrow for ask in _narrow_asks(name, float(data["guess"].iloc[0]), scale)]
        return claims_of([*asks, *(WIDTHS if self.positional == "rope" else ())], data, DECLARED)

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw one panel per shape."""
        names = panels(self.positional)
        figure = new_figure(PAGE, 3.6)
        drawn = figure.subplots(1, len(names), sharey=True)
        for name, axes in zip(names, drawn, strict=True):
            width, heads, _ = SHAPES[name]
            styles = {kv(name): Line(BLUE), vanilla(name): Line(ORANGE, "--")}
            learning_curves(axes, data, "step", "accuracy_first", styles)
            axes.set_title(f"hidden size {width}, {heads} head{'s' * (heads > 1)}", fontsize=10)
            axes.set(ylim=(-0.02, 1.02), xlabel="training step")
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.axhline(data["guess"].iloc[0], color="0.5", lw=1, ls=(0, (1, 3)))
        handles = drawn[0].get_lines()
        keys = ["KV shifting, 1 layer", "vanilla, 2 layers", "guessing another token of the sequence"]
        figure.legend(handles, keys, loc="outside lower center", ncols=3)
        drawn[0].set_ylabel("accuracy at the first repeat")
        figure.suptitle(
            f"How narrow can a model that learns induction be? {POSITIONS[self.positional]}, {scale} scale\n"
            "Line: median of the seeds. Band: all seeds.",
            fontsize=11,
        )
        return figure

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw one panel per shape, to explore."""
        from ihlab.plots import interactive

        names, styles = panels(self.positional), {KV1: Line(BLUE), V2: Line(ORANGE, "--")}
        kinds = {side(name): kind for name in names for side, kind in ((kv, KV1), (vanilla, V2))}
        sizes = {
            side(name): f"hidden size {SHAPES[name][0]}, heads: {SHAPES[name][1]}"
            for name in names
            for side in (kv, vanilla)
        }
        shown = data[data["curve"].isin(list(kinds))]
        shown = shown.assign(model=shown["curve"].map(kinds), size=shown["curve"].map(sizes))
        title = f"How narrow can a model that learns induction be? {POSITIONS[self.positional]}, {scale} scale"
        figure = interactive.curves(shown, "step", "accuracy_first", "model", "size", styles, title, **AXES)
        guess = float(data["guess"].iloc[0])
        return figure.add_hline(guess, line={"color": "#777777", "dash": "dot", "width": 1})

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the number of runs that learned in each panel."""
        columns = ["hidden size", "heads", f"learned: {KV1}", f"learned: {V2}"]
        rows = [
            (width, heads, _counts(data, kv(name)), _counts(data, vanilla(name)), f"{np.median(covered):.0%}")
            for name in panels(self.positional)
            for width, heads, _ in [SHAPES[name]]
            for covered in [final(data, vanilla(name), "in_row")]
        ]
        return pd.DataFrame(rows, columns=[*columns, f"answers of {V2} that are in the sequence (median)"])


def _learned_less(curve: str, other: str) -> Number:
    """Return the fraction of runs of one curve that learned induction, minus that of another."""

    def number(data: pd.DataFrame) -> Measured:
        told = f"{curve} minus {other} ({_counts(data, curve)} minus {_counts(data, other)})"
        found = stats.share_difference(*_learned(data, curve), *_learned(data, other))
        return Measured(
            f"fraction of runs with a final accuracy of at least {LEARNED}, {told}", found, len(final(data, curve))
        )

    return number


def _share_below(column: str, limit: float, curve: str, what: str) -> Number:
    """Return the fraction of a curve's runs that end below a limit."""

    def number(data: pd.DataFrame) -> Measured:
        ends = final(data, curve, column)
        found = stats.share(sum(x < limit for x in ends), len(ends))
        return Measured(f"fraction of runs of {curve} {what} (median {np.median(ends):.2f})", found, len(ends))

    return number


def _narrow_asks(name: str, guess: float, scale: Scale) -> list[Ask]:
    """Return the questions about hidden size 8 with one number of heads and positions. The paper has only RoPE."""
    _, heads, positional = SHAPES[name]
    where = dict(zip(("heads", "positions"), _heads(name).split(", "), strict=True))
    id, setting = f"{positional}.{where['heads'].replace(' ', '_')}", {k: where[k] for k in ("positions", "heads")}
    ask = partial(Ask, source="section 3.2, Figure 1b", of_paper=True, statement=10, setting=setting)
    if positional != "rope":
        ask = partial(ask, source="Figure 1b with learned positions", of_paper=False)
    both = "At hidden size 8 standard attention learns very poorly; KV shifting does not."
    less = _learned_less(kv(name), vanilla(name))

    def learned(data: pd.DataFrame) -> Measured:
        """Compare nothing where no run learns."""
        if _learned(data, kv(name))[0] or _learned(data, vanilla(name))[0]:
            return less(data)
        why = f"No run of either model has a final accuracy of at least {LEARNED} ({_heads(name)})."
        return less(data)._replace(measure="", estimate=None, why=why)

    def shift(data: pd.DataFrame) -> stats.Estimate:
        return stats.shift(final(data, kv(name)), final(data, vanilla(name)), stats.DIFFERENCE)

    accuracy = f"final accuracy, {kv(name)} minus {vanilla(name)}, median over pairs of runs"
    chance = (
        f"that end less than {NEAR_CHANCE} above the accuracy of guessing another token of the sequence, {guess:.3f}"
    )
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


_width = partial(Ask, source="section 3.2, Figure 1b", of_paper=True)
WIDTHS = (
    _width(
        "not_even_covered",
        "At hidden size 8 standard attention even fails to answer with a token of the previous text.",
        _share_below("in_row", COVERS, vanilla("8"), f"in which less than {COVERS:.0%} of the answers are tokens of "
        "the sequence"),
        above=0.5, statement=10,
    ),
    _width(
        "narrow_faster", "KV shifting learns induction faster at hidden size 8.",
        of(steps_per_run, ratio({"curve": kv("8")}, {"curve": vanilla("8")})), below=MUCH_FASTER,
        source="related to Figure 1b", of_paper=False, statement=10,
    ),
    _width(
        "harder_when_narrower",
        "The smaller the hidden size, the harder induction is for standard attention to learn.",
        _learned_less(vanilla("32"), vanilla("8, 2 heads")), above=0.0,
    ),
)  # fmt: skip


def _heads(name: str) -> str:
    _, heads, positional = SHAPES[name]
    return f"{heads} head{'s' * (heads > 1)}, {POSITIONS[positional]}"


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


FIGURE1A, FIGURE1A_LEARNED = Figure1a(), Figure1a("learned")
FIGURE1B, FIGURE1B_LEARNED = Figure1b(), Figure1b("learned")
