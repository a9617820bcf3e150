"""Why does a key shift help on one mix of text and not on another?

Hypothesis: a key shift saves the same fraction of those bits that copying could save, and nothing elsewhere. Then the
fraction of all bits that it saves is proportional to the fraction of bits at *copyable* positions: those whose last
four bytes occur earlier in the sequence, followed by the target (`ihlab.measure.text.position_classes`). Eight mixes
(`tasks.text.mixes`) differ in that fraction. Two of them have lines in random order, which leaves the entropy of a line
and takes away what can be copied.

Both axes are fractions of vanilla attention's bits, because mixes differ in entropy: if a shift made every bit cheaper
alike, its gain in bits per byte would grow with the bits per byte at copyable positions all the same. As fractions, its
line would be flat.

Models have one layer, and every variant has one rate for all mixes (`RATES`). A line is fitted to the gains of the
mixes, and its interval is Student's t over mixes: the scatter about the line holds what seeds and mixes do.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.ask import Ask, Cell, claim_id, named
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import K_ONLY, KV, V_ONLY, VANILLA
from ihlab.claims.real_text import held_out, held_out_classes, repeated, text_run
from ihlab.claims.study import Run, Study, cells
from ihlab.plots.style import PAGE, new_figure
from ihlab.plots.views import COLORS, MARKERS
from ihlab.training.config import RunConfig
from tasks import TextTask

OFFSET = "partial key offset"
VARIANTS = {VANILLA: "vanilla", K_ONLY: "k_shift", OFFSET: "key_offset", V_ONLY: "v_shift", KV: "kv_shift"}
SHIFTS = (K_ONLY, OFFSET, V_ONLY, KV)

RULES = {
    "code": "",
    "code without prose": ":bare",
    "code, names replaced": ":names",
    "code, lines shuffled": ":lines",
    "names replaced, lines shuffled": ":names:lines",
    "half code, half prose": ":half",
    "prose": ":prose",
    "prose, lines shuffled": ":prose:lines",
}
"""The rules of each mix, as they follow the name of a corpus. Prose is docstrings and comments."""
SMOKE_MIXES = ("code", "code, lines shuffled", "half code, half prose")

RATES = {"smoke": (8e-3, 8e-3), "laptop": (1.6e-2, 3.2e-2)}
"""Learning rates of vanilla attention and of the shifts.

Those at laptop scale were the best of .016, .032 and .064 on half code, half prose with another seed and 240 steps;
for K only of .016 and .032 on code, because on that mix it learned to copy at no rate so soon. Hence 400 steps here.
KV shifting was added later and has the rate of the other shifts.
"""
CONTEXT = 4
"""Bytes of context by which positions are classified."""
NEAR = 0.02
"""An intercept is near 0 if it is less than this fraction of vanilla's bits."""
SAME = 0.01
"""Two variants gain alike if their gains differ by less than this fraction of vanilla's bits."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the run of one layer of a variant on a mix."""
    run = text_run(scale)
    assert isinstance(run.task, TextTask)
    task, model = replace(run.task, corpus=run.task.corpus + RULES[cell["mix"]]), run.model.replace(n_layers=1)
    if scale == "laptop":
        task, model = replace(task, vocab_size=512), model.replace(d_model=64, n_heads=2, d_vocab=512)
        run = run.replace(steps=400, warmup=60, eval_every=100)
    model, lr = model.replace(attention=VARIANTS[cell["variant"]]), RATES[scale][cell["variant"] != VANILLA]
    return run.replace(task=task, model=model, lr=lr, checkpoints=2)


def measure(run: Run) -> dict[str, float]:
    """Measure a finished model on held-out sequences.

    - bits_per_byte;
    - bits_copyable, bits_misled: the bits per byte (of all bytes) that are spent at copyable positions, and at those
      whose last four bytes were never followed by the target;
    - positions_copyable: the fraction of positions;
    - repeat_gain: nats per token that a second copy of a text saves, which shows whether copying is learned.
    """
    from ihlab.measure import text

    task, rows = run.config.task, run.config.eval_rows
    if run.diverged or not run.checkpoints or not isinstance(task, TextTask):
        return {}
    (batch, n_bytes), twice = held_out(task, 4 * rows), repeated(task, rows // 2)
    classes, model = held_out_classes(task, 4 * rows, CONTEXT), run.model()
    losses = text.token_losses(model, batch.inputs, batch.targets)
    copyable, misled = (
        text.bits_per_byte(np.where(classes == of, losses, 0.0), n_bytes) for of in (text.ELIGIBLE, text.MISLED)
    )
    return {
        "n_params": (run.done or {})["n_params"],
        "bits_per_byte": text.bits_per_byte(losses, n_bytes), "bits_copyable": copyable, "bits_misled": misled,
        "positions_copyable": float((classes == text.ELIGIBLE).mean()),
        "repeat_gain": text.repeat_gain(text.token_losses(model, twice.inputs, twice.targets), twice.period),
    }  # fmt: skip


def _of(data: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Return the runs of a variant, by mix and seed."""
    return data[data["variant"] == variant].set_index(["mix", "seed"]).sort_index()


def copyable(data: pd.DataFrame) -> "pd.Series[float]":
    """Return the fraction of vanilla's bits at copyable positions, mean over seeds, by mix."""
    plain = _of(data, VANILLA)
    return (plain["bits_copyable"] / plain["bits_per_byte"]).groupby("mix").mean()


def gains(data: pd.DataFrame, variant: str, column: str = "bits_per_byte") -> "pd.Series[float]":
    """Return the fraction of vanilla's bits that a variant saves, mean over seeds, by mix.

    With another column, only the saving of that column's bits counts, still as a fraction of all bits.
    """
    plain, mine = _of(data, VANILLA), _of(data, variant)
    return ((plain[column] - mine[column]) / plain["bits_per_byte"]).groupby("mix").mean()


def line(data: pd.DataFrame, variant: str) -> tuple[stats.Estimate, stats.Estimate]:
    """Return slope and intercept of a variant's gain by mix."""
    at = copyable(data)
    return stats.line(at.tolist(), gains(data, variant)[at.index].tolist())


SAVED = "fraction of vanilla's bits saved"
ask = partial(Ask, source="a hypothesis of our own")


def by_mix(id: str, variant: str, sentence: str, what: str, **threshold: Any) -> Ask:
    """Ask about a variant's line over mixes: its slope, its intercept or the intercept's size.

    In `sentence`, {} is the variant.
    """

    def estimate(data: pd.DataFrame) -> stats.Estimate:
        slope, intercept = line(data, variant)
        return {"slope": slope, "intercept": intercept, "size of the intercept": stats.size(intercept)}[what]

    number = named(
        f"{what} of a line through the mixes: {SAVED}, against the fraction of these bits at copyable positions",
        estimate,
    )
    return ask(claim_id(id, variant), sentence.format(variant), number, setting={"variant": variant}, **threshold)


def beside_kv(id: str, sentence: str, words: str, both: np.ufunc) -> Ask:
    """Ask whether KV shifting saves at least about as much as the larger gain of its halves, or as their sum."""

    def lead(data: pd.DataFrame) -> stats.Estimate:
        halves = both(gains(data, K_ONLY), gains(data, V_ONLY))
        return stats.mean((gains(data, KV) - halves).tolist())

    number = named(f"{SAVED} by {KV}, minus the {words}, mean over mixes", lead)
    return ask(id, f"{sentence}.", number, above=-SAME, declared="2026-11-27")


KEYS = (
    (
        "gain_grows",
        "The gain of {} on text grows with the fraction of bits that can be copied from the context.", "slope",
        {"above": 0.0},
    ),
    (
        "no_gain_without_copies",
        "On text that cannot be copied from the context, {} gains about nothing.", "size of the intercept",
        {"below": NEAR},
    ),
)  # fmt: skip
"""Questions about each key shift."""


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return each mix's copyable fraction and the gains, and how much of the gain of K only lies there, in percent."""
    at = copyable(data).sort_values()
    saved = pd.DataFrame({f"saved by {variant}": gains(data, variant) for variant in SHIFTS})
    there = gains(data, K_ONLY, "bits_copyable").rename(f"by {K_ONLY}, copyable")
    table = pd.concat([at.rename("copyable"), saved, there], axis=1).loc[at.index]
    return (100 * table).round(1).rename_axis("mix").reset_index()


def view(data: pd.DataFrame) -> Figure:
    """Draw every mix's gain against its copyable fraction, and each variant's line."""
    figure = new_figure(PAGE, 5.6)
    axes, at = figure.subplots(), copyable(data).sort_values()
    ends = np.array([0.0, 1.05 * at.max()])
    for variant, color, marker, dashes in zip(SHIFTS, COLORS, MARKERS, ("-", "--", ":", "-."), strict=False):
        fit_slope, at_zero = (estimate.value for estimate in line(data, variant))
        axes.plot(ends, at_zero + fit_slope * ends, dashes, color=color, lw=1.3)
        axes.plot(at, gains(data, variant)[at.index], marker, color=color, mfc="white", ms=6, label=variant)
    place = -np.inf
    for mix, x in at.items():
        place = max(x, place + 0.04 * at.max())  # names of mixes that lie together stay apart
        axes.annotate(
            str(mix), (x, 1), (place, 1.03), rotation=32, fontsize=9,
            xycoords=("data", "axes fraction"), textcoords=("data", "axes fraction"), rotation_mode="anchor",
            arrowprops={"arrowstyle": "-", "color": "0.6", "lw": 0.7},
        )  # fmt: skip
    axes.axhline(0, color="0.4", lw=0.8)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set(
        xlim=ends, xlabel="vanilla's bits at positions that can be copied", ylabel="vanilla's bits that the shift saves"
    )
    axes.legend(loc="upper center")
    return figure


MIXES = Study(
    name="mixes",
    title="A shift's gain by mix of text, with one layer",
    declared="2026-11-26",
    cells=cells(variant=tuple(VARIANTS), mix=tuple(RULES)),
    smoke=cells(variant=tuple(VARIANTS), mix=SMOKE_MIXES),
    config=config,
    seeds=range(1),
    measure=measure,
    asks=(
        *(
            by_mix(id, variant, sentence, what, **threshold)
            for variant in (K_ONLY, OFFSET)
            for id, sentence, what, threshold in KEYS
        ),
        by_mix(
            "gain_without_copies", V_ONLY, "{} gains even on text that cannot be copied from the context.", "intercept",
            above=NEAR, statement=28, against=True,
        ),
        ask(
            "k_and_offset_alike", f"{K_ONLY} and {OFFSET} gain the same on text.",
            named(
                f"size of the difference in the {SAVED}, mean over mixes",
                lambda data: stats.size(stats.mean((gains(data, K_ONLY) - gains(data, OFFSET)).tolist())),
            ),
            below=SAME,
        ),
        beside_kv(
            "kv_as_the_better_half", f"{KV} saves at least as much on text as {K_ONLY} and as {V_ONLY}",
            "larger of the two halves", np.maximum,
        ),
        beside_kv(
            "kv_as_both_halves", f"{KV} saves at least as much on text as {K_ONLY} and {V_ONLY} together",
            "sum of the two halves", np.add,
        ),
    ),
    shown=shown,
    view=view,
)  # fmt: skip
