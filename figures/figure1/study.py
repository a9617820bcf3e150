"""Figure 1: learning curves of induction, at various depths (a) and at a small hidden size (b).

All curves of Figure 1a share one learning rate. The study `robustness` tunes each model's rate.
Figure 1b compares one layer of KV shifting with two vanilla layers, which have twice the
parameters.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ihlab.measure.guess import guess_of
from ihlab.model.config import ModelConfig
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLACK, BLUE, ORANGE, PAGE, RED, new_figure
from ihlab.recipes import induction
from ihlab.recipes.induction import (
    KV1,
    MUCH_FASTER,
    SHAPES,
    V1,
    V2,
    V4,
    kv,
    panel_of,
    panels,
    vanilla,
)
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, described, ratio, untested_if, values
from ihlab.study.learning_curves import evaluations, learning
from ihlab.study.rates import median_in_words
from ihlab.study.study import Run, Study, cells
from ihlab.training.config import RunConfig
from tasks import IGNORE, InductionTask, Task

SIDES = {KV1: Line(BLUE), V2: Line(ORANGE, "--")}
LINES = {**SIDES, V4: Line(RED, "-."), V1: Line(BLACK, ":")}

NEAR_CHANCE = 0.1
"""An accuracy at most this far above guessing is "near chance"."""
NOT_FASTER = 0.8
"""Ratio of steps above which a curve is not faster. It is below 1 because exact equality cannot be
shown.
"""

DECLARED = "2026-11-27"
"""Date on which the seeds were declared. Questions and thresholds are those of 2026-11-22 and
2026-11-26.
"""
FLOOR = "2026-11-26: where no run of either model learns, nothing is compared"

POSITIONS = {"rope": "RoPE", "learned": "learned positions"}
"""Position schemes by `ModelConfig.positional`. The paper's is RoPE; learned positions are our own
question.
"""

AXES = {"xlabel": "training step", "ylabel": "accuracy at the first repeat"}

LEARNED = 0.9
"""A run has learned induction if its final accuracy is at least this."""
WIDE_MARGIN = 0.3
"""Difference that counts as "very poorly", as a fraction of runs or as an accuracy."""
COVERS = 0.5
"""A model does not cover the sequence if less than this fraction of its answers are tokens of the
sequence.
"""


def measure(run: Run) -> dict[str, Any]:
    """Return when a run has learned, its final accuracy, and the accuracy of guessing another token
    of the sequence.
    """
    return {**learning(run), "guess": guessing_accuracy(run.config.task)}


def guessing_accuracy(task: Task) -> float:
    """Return the accuracy of a guess (`guess_of`) at first repeats, from 4096 sequences, rounded to
    four decimals.

    A model reaches it if it knows that the answer is in the sequence and is not the current token,
    but not where it is.
    """
    batch = task.batch(4096, np.random.default_rng(0))
    first = (batch.answers != IGNORE).argmax(axis=1)
    return round(guess_of(batch, np.arange(batch.inputs.shape[1]) == first[:, None]), 4)


def guess(data: pd.DataFrame) -> float:
    """Return the accuracy of guessing another token of the sequence."""
    return float(data["guess"].iloc[0])


def draw_guess(figure: Any, data: pd.DataFrame) -> Any:
    """Add the accuracy of guessing to an interactive picture."""
    return figure.add_hline(guess(data), line={"color": "#777777", "dash": "dot", "width": 1})


# Larger scales: the runs of one vanilla layer


def larger(vocab_size: int, length: int, shape: dict[str, Any], **fields: Any) -> RunConfig:
    """Return the run of one vanilla layer on longer sequences with a larger vocabulary."""
    model = ModelConfig(n_layers=1, d_vocab=vocab_size, n_ctx=length, n_heads=8, **shape)
    task = InductionTask(vocab_size=vocab_size, length=length)
    return RunConfig(
        task=task, model=model, precision="bf16", compile=True, eval_rows=1024, **fields
    )


GPU = larger(
    2048,
    256,
    {"d_model": 256},
    steps=3000,
    batch_size=64,
    lr=1e-3,
    warmup=200,
    schedule="trapezoid",
)

# Section 3.2, Appendices K and N: vocabulary 8000, length 512, d_model 1024, 8 x 512 sequences a
# step, lr 2e-4, 1000 steps of warm-up. Inferred: 8 heads (of width 128, as in Table 16), d_mlp 5504
# (one layer then has the paper's "approximately 20M" parameters), the initialisation (Llama's),
# 5000 steps.
PAPER = larger(
    8000, 512, {"d_model": 1024, "d_mlp": 5504, "init_std": 0.02}, steps=5000, batch_size=4096, accumulate=16, lr=2e-4,
    warmup=1000, eval_every=25,
)  # fmt: skip


# Figure 1a


def by_depth(data: pd.DataFrame) -> Figure:
    """Draw accuracy against steps."""
    figure = new_figure(PAGE, 4.6)
    axes = figure.subplots()
    learning_curves(axes, data, "step", "accuracy_first", LINES)
    axes.axhline(guess(data), color="0.5", lw=1, ls=(0, (1, 3)), label="guessing")
    axes.set(**AXES, ylim=(-0.02, 1.02))
    axes.legend(loc="center right")
    return figure


def explore_depth(data: pd.DataFrame, title: str) -> Any:
    """Draw an interactive picture of accuracy against steps, a line per seed."""
    from ihlab.plots import interactive

    figure = interactive.curves(data, "step", "accuracy_first", lines=LINES, title=title, **AXES)
    return draw_guess(figure, data)


def depth_summary(data: pd.DataFrame) -> pd.DataFrame:
    """Return the seeds, the median steps to 90% and the mean final accuracy of every curve."""
    rows = []
    for curve in (KV1, V1, V2, V4):
        runs = data[data["curve"] == curve].drop_duplicates("seed")
        steps = median_in_words(runs["steps_to_90"].tolist())
        rows.append((curve, len(runs), steps, f"{runs['final'].mean():.3f}"))
    columns = ["model", "seeds", "median steps to 90%", "mean final accuracy"]
    return pd.DataFrame(rows, columns=columns)


def accuracy(cell: Cell) -> Number:
    """Return the mean final accuracy of a curve."""

    def mean(data: pd.DataFrame) -> stats.Estimate:
        return stats.mean_accuracy(values(data, cell, "final"), int(data["rows"].iloc[0]))

    return described(f"final accuracy of {cell['curve']}", mean, cell)


def depth_asks(positional: str) -> list[Ask]:
    """Return the questions of Figure 1a: Section 3.2, "Various depth"."""
    paper = positional == "rope"
    source = "section 3.2, Figure 1a" if paper else "Figure 1a with learned positions"
    one, two, kv1, four = ({"curve": name} for name in (V1, V2, KV1, V4))

    ask = partial(Ask, source=source, of_paper=paper, statement=9)
    asks = [
        ask(
            "vanilla1_hard",
            "It is difficult for a one-layer standard transformer to learn induction.",
            accuracy(one),
            statement=1,
            below=lambda data: round(guess(data) + NEAR_CHANCE, 4),
        ),
        ask(
            "kv1_perfect",
            "1-layer KV shifting attention can perfectly learn the ability of induction.",
            accuracy(kv1),
            above=0.99,
        ),
        ask(
            "vanilla2_perfect",
            "The 2-layer transformer can perfectly learn the ability of induction.",
            accuracy(two),
            above=0.99,
        ),
        ask(
            "faster",
            "KV shifting attention converges much faster than two-layer transformers.",
            ratio(kv1, two),
            below=MUCH_FASTER,
        ),
        ask(
            "four_layers_no_faster",
            "Increasing vanilla to 4 layers does not make the model learn induction faster.",
            ratio(four, two),
            above=NOT_FASTER,
        ),
    ]
    setting = {"positions": POSITIONS[positional]}
    return [replace(each, id=f"{each.id}.{positional}", setting=setting) for each in asks]


def figure1a(positional: str, **fields: Any) -> Study:
    """Return Figure 1a with a position scheme."""
    return Study(
        title=f"How many layers does induction need? {POSITIONS[positional]}",
        caption="Line: median of the seeds. Band: all seeds. Dotted: guessing. Runs of four layers end at 90%.",
        declared=DECLARED,
        cells=cells(curve=tuple(induction.DEPTHS)),
        config=partial(induction.depth_config, positional=positional),
        seeds=partial(induction.depth_seeds, positional=positional),
        measure=measure,
        curve=evaluations,
        asks=depth_asks(positional),
        view=by_depth,
        interactive=explore_depth,
        summary_columns=depth_summary,
        **fields,
    )


FIGURE1A = figure1a(
    "rope",
    scales={
        "smoke": {},
        "laptop": {},
        "gpu": {
            "config": partial(induction.depth_config, run=GPU),
            "seeds": range(8),
            "stacked": True,
        },
        "paper": {"config": partial(induction.depth_config, run=PAPER), "seeds": range(3)},
    },
    name="figure1a",
    heading="Figure 1a: how fast is induction learned?",
    by_default=True,
)
FIGURE1A_LEARNED = figure1a(
    "learned",
    name="figure1a_learned",
    heading="Figure 1a, learned positions: how fast is induction learned?",
)


# Figure 1b


def in_row(run: Run) -> float:
    """Return the fraction of a model's answers at first repeats that are tokens of the sequence so
    far, right or wrong.

    It is measured on the run's own held-out sequences.
    """
    import torch

    from ihlab.measure.batches import EVAL_SEED, draw

    batch = draw(run.config.task, EVAL_SEED, "eval", 0, run.config.eval_rows)
    rows, first = np.arange(len(batch.inputs)), (batch.answers != IGNORE).argmax(axis=1)
    with torch.no_grad():
        logits = run.model()(torch.from_numpy(batch.inputs.copy()))
    answers = logits[rows, first].argmax(dim=-1).numpy()
    so_far = np.arange(batch.inputs.shape[1]) <= first[:, None]
    return round(float(((batch.inputs == answers[:, None]) & so_far).any(axis=1).mean()), 6)


def in_panels(data: pd.DataFrame) -> pd.DataFrame:
    """Return the curves with the columns `model` and `size`, where `size` is the title of their
    panel.
    """
    shapes = [SHAPES[panel_of({"curve": curve})] for curve in data["curve"]]
    return data.assign(
        model=np.where(data["curve"].str.startswith(KV1), KV1, V2),
        size=[f"hidden size {width}, heads: {heads}" for width, heads, _ in shapes],
    )


def by_width(data: pd.DataFrame) -> Figure:
    """Draw one panel per shape."""
    table = in_panels(data)
    sizes = list(dict.fromkeys(table["size"]))
    figure = new_figure(PAGE, 3.6)
    drawn = figure.subplots(1, len(sizes), sharey=True)
    for size, axes in zip(sizes, drawn, strict=True):
        runs = table[table["size"] == size].assign(curve=table["model"])
        learning_curves(axes, runs, "step", "accuracy_first", SIDES)
        axes.set_title(size, fontsize=10)
        axes.set(ylim=(-0.02, 1.02), xlabel=AXES["xlabel"])
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.axhline(guess(data), color="0.5", lw=1, ls=(0, (1, 3)))
    names = [KV1, V2, "guessing another token of the sequence"]
    figure.legend(drawn[0].get_lines(), names, loc="outside lower center", ncols=3)
    drawn[0].set_ylabel(AXES["ylabel"])
    return figure


def explore_width(data: pd.DataFrame, title: str) -> Any:
    """Draw an interactive picture with one panel per shape."""
    from ihlab.plots import interactive

    figure = interactive.curves(
        in_panels(data), "step", "accuracy_first", "model", "size", SIDES, title, **AXES
    )
    return draw_guess(figure, data)


def width_summary(data: pd.DataFrame) -> pd.DataFrame:
    """Return the number of runs that learned in each panel."""
    rows, runs = [], data.drop_duplicates(["curve", "seed"])
    for panel in dict.fromkeys(panel_of({"curve": curve}) for curve in runs["curve"]):
        width, heads, _ = SHAPES[panel]
        covered = np.median(values(runs, {"curve": vanilla(panel)}, "in_row"))
        row: dict[str, Any] = {"hidden size": width, "heads": heads}
        row[f"learned: {KV1}"] = counts(runs, kv(panel))
        row[f"learned: {V2}"] = counts(runs, vanilla(panel))
        row[f"answers of {V2} that are in the sequence (median)"] = f"{covered:.0%}"
        rows.append(row)
    return pd.DataFrame(rows)


def learned(data: pd.DataFrame, curve: str) -> tuple[int, int]:
    """Count the runs of a curve that learned induction, and all its runs."""
    ends = values(data, {"curve": curve}, "final")
    return sum(end >= LEARNED for end in ends), len(ends)


def counts(data: pd.DataFrame, curve: str) -> str:
    """Return the two numbers of `learned` in words."""
    return "{} of {}".format(*learned(data, curve))


def learned_less(curve: str, other: str) -> Number:
    """Return the fraction of runs of one curve that learned induction, minus that of another."""

    def number(data: pd.DataFrame) -> Measured:
        one, two = learned(data, curve), learned(data, other)
        sides = f"{curve} minus {other} ({counts(data, curve)} minus {counts(data, other)})"
        words = f"fraction of runs with a final accuracy of at least {LEARNED}, {sides}"
        return Measured(words, stats.share_difference(*one, *two), one[1])

    return number


def share_below(column: str, curve: str, words: str, least: float | None = None) -> Number:
    """Return the fraction of a curve's runs that end below a limit, by default near chance."""

    def number(data: pd.DataFrame) -> Measured:
        ends = values(data, {"curve": curve}, column)
        limit = guess(data) + NEAR_CHANCE if least is None else least
        share = stats.share(sum(end < limit for end in ends), len(ends))
        what = words.format(guess=guess(data))
        return Measured(
            f"fraction of runs of {curve} {what} (median {np.median(ends):.2f})", share, len(ends)
        )

    return number


def narrow_asks(panel: str) -> list[Ask]:
    """Return the questions about hidden size 8 with a number of heads and a position scheme. The
    paper's is RoPE.
    """
    _, n_heads, positional = SHAPES[panel]
    heads, positions = f"{n_heads} head{'s' * (n_heads > 1)}", POSITIONS[positional]
    id, shifted, plain = f"{positional}.{heads.replace(' ', '_')}", kv(panel), vanilla(panel)
    paper = positional == "rope"
    ask = partial(
        Ask,
        source="section 3.2, Figure 1b" if paper else "Figure 1b with learned positions",
        of_paper=paper,
        statement=10,
        setting={"positions": positions, "heads": heads},
    )
    both = "At hidden size 8 standard attention learns very poorly; KV shifting does not."
    less = learned_less(shifted, plain)

    def none_learned(data: pd.DataFrame) -> str:
        if learned(data, shifted)[0] or learned(data, plain)[0]:
            return ""
        return f"No run of either model has a final accuracy of at least {LEARNED} ({heads}, {positions})."

    def shift(data: pd.DataFrame) -> stats.Estimate:
        a, b = (values(data, {"curve": curve}, "final") for curve in (shifted, plain))
        return stats.shift(a, b, stats.DIFFERENCE)

    chance = f"that end less than {NEAR_CHANCE} above the accuracy of guessing another token of the sequence"
    asks = [
        ask(
            f"narrow.share.{id}",
            both,
            untested_if(none_learned, less),
            above=WIDE_MARGIN,
            first=less,
            changed=FLOOR,
        ),
        ask(
            f"narrow.accuracy.{id}",
            both,
            described(
                f"final accuracy, {shifted} minus {plain}, median over pairs of runs",
                shift,
                {"curve": shifted},
            ),
            above=WIDE_MARGIN,
        ),
        ask(
            f"narrow_vanilla.{id}",
            "At hidden size 8 standard attention learns very poorly.",
            share_below("final", plain, chance + ", {guess:.3f}"),
            above=0.5,
        ),
    ]
    return asks[:2] if n_heads > 1 else asks


WIDTHS = (
    Ask(
        "not_even_covered",
        "At hidden size 8 standard attention even fails to answer with a token of the previous text.",
        share_below(
            "in_row",
            vanilla("8"),
            f"in which less than {COVERS:.0%} of the answers are tokens of the sequence",
            COVERS,
        ),
        above=0.5,
        source="section 3.2, Figure 1b",
        of_paper=True,
        statement=10,
    ),
    Ask(
        "narrow_faster",
        "KV shifting learns induction faster at hidden size 8.",
        ratio({"curve": kv("8")}, {"curve": vanilla("8")}),
        below=MUCH_FASTER,
        source="related to Figure 1b",
        statement=10,
    ),
    Ask(
        "harder_when_narrower",
        "The smaller the hidden size, the harder induction is for standard attention to learn.",
        learned_less(vanilla("32"), vanilla("8, 2 heads")),
        above=0.0,
        source="section 3.2, Figure 1b",
        of_paper=True,
    ),
)


def figure1b(positional: str, **fields: Any) -> Study:
    """Return Figure 1b with a position scheme: Section 3.2, "Various width"."""
    shown = panels(positional)
    asks = [ask for panel in shown if SHAPES[panel][0] == 8 for ask in narrow_asks(panel)]
    return Study(
        title=f"How narrow can a model that learns induction be? {POSITIONS[positional]}",
        caption="Line: median of the seeds. Band: all seeds.",
        declared=DECLARED,
        cells=[{"curve": side(panel)} for panel in shown for side in (kv, vanilla)],
        config=induction.width_config,
        seeds=induction.width_seeds,
        stacked=induction.is_narrow,
        measure=lambda run: {**measure(run), "in_row": in_row(run)},
        curve=evaluations,
        asks=[*asks, *(WIDTHS if positional == "rope" else ())],
        view=by_width,
        interactive=explore_width,
        summary_columns=width_summary,
        **fields,
    )


FIGURE1B = figure1b(
    "rope",
    scales={
        "smoke": {},
        "laptop": {},
        "gpu": {
            "config": partial(induction.width_config, run=induction.narrow_run(GPU)),
            "seeds": partial(induction.width_seeds, first=0),
        },
        "paper": {"config": partial(induction.width_config, run=PAPER), "seeds": range(3)},
    },
    name="figure1b",
    heading="Figure 1b: can narrow models learn induction?",
    by_default=True,
)
FIGURE1B_LEARNED = figure1b(
    "learned",
    name="figure1b_learned",
    heading="Figure 1b, learned positions: can narrow models learn it?",
)
