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
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.labels import K_ONLY, V_ONLY, VANILLA
from ihlab.claims.learning_curves import slug
from ihlab.claims.real_text import held_out, held_out_classes, repeated, text_run
from ihlab.plots.style import BLUE, GREEN, ORANGE, PAGE, new_figure, printed
from tasks import TextTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

OFFSET = "partial key offset"
VARIANTS = {VANILLA: "vanilla", K_ONLY: "k_shift", OFFSET: "key_offset", V_ONLY: "v_shift"}
STYLES = {K_ONLY: (BLUE, "o", "-"), OFFSET: (GREEN, "s", "--"), V_ONLY: (ORANGE, "^", ":")}

MIXES = {
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

SEEDS = {"smoke": range(2), "laptop": range(1), "gpu": range(3), "paper": range(3)}
RATES = {"smoke": (8e-3, 8e-3), "laptop": (1.6e-2, 3.2e-2), "gpu": (1e-3, 1e-3), "paper": (5e-4, 5e-4)}
"""Learning rates of vanilla attention and of the shifts.

Those at laptop scale were the best of .016, .032 and .064 on half code, half prose with another seed and 240 steps;
for K only of .016 and .032 on code, because on that mix it learned to copy at no rate so soon. Hence 400 steps here.
"""
CONTEXT = 4
"""Bytes of context by which positions are classified."""
ROWS = {"smoke": 8, "laptop": 256, "gpu": 1024, "paper": 1024}
"""Number of held-out sequences."""
NEAR = 0.02
"""An intercept is near 0 if it is less than this fraction of vanilla's bits."""
SAME = 0.01
"""Two variants gain alike if their gains differ by less than this fraction of vanilla's bits."""


class Mixes:
    """The fraction of bits that shifts save, against the fraction of bits that could be copied."""

    name = "mixes"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every variant on every mix."""
        return [
            planned(variant, mix, seed, scale) for variant in VARIANTS for mix in mixes(scale) for seed in SEEDS[scale]
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per run: variant, mix, lr, seed, n_params, and on held-out sequences:

        - bits_per_byte;
        - bits_copyable, bits_misled: the bits per byte (of all bytes) that are spent at copyable positions, and at
          those whose last four bytes were never followed by the target;
        - positions_copyable: the fraction of positions;
        - repeat_gain: nats per token that a second copy of a text saves, which shows whether copying is learned.
        """
        return pd.DataFrame([_row(curve, run, scale) for curve, run in trained])

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge slopes and intercepts, which were declared before the runs."""
        lines = {variant: line(data, variant) for variant in STYLES}
        n_mixes, seeds = data["mix"].nunique(), len(SEEDS[scale])
        own = partial(
            Claim, source="a hypothesis of our own", of_paper=False, declared="2026-11-26", seeds=seeds, threshold=0.0
        )
        of = f"{n_mixes} mixes: fraction of vanilla's bits saved against their fraction at copyable positions"
        keys = [
            claim
            for variant in (K_ONLY, OFFSET)
            for claim in (
                own(
                    sentence=f"{variant}: the gain grows with the fraction of bits that could be copied.",
                    measure=f"slope over {of}",
                    estimate=lines[variant][0],
                ),
                own(
                    sentence=f"{variant}: where nothing could be copied, there is about no gain.",
                    measure=f"size of the intercept over {of}",
                    estimate=stats.size(lines[variant][1]),
                    threshold=NEAR,
                    right_side="below",
                ),
            )
        ]
        return [
            *keys,
            own(
                sentence=f"{V_ONLY}: there is a gain even where nothing could be copied.",
                measure=f"intercept over {of}",
                estimate=lines[V_ONLY][1],
                threshold=NEAR,
            ),
            own(
                sentence=f"{K_ONLY} and {OFFSET} gain alike on text.",
                measure=f"size of the difference of the fractions of vanilla's bits saved, mean over {n_mixes} mixes",
                estimate=stats.size(stats.mean((gains(data, K_ONLY) - gains(data, OFFSET)).tolist())),
                threshold=SAME,
                right_side="below",
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every mix's gain against its copyable fraction, and each variant's line."""
        figure = new_figure(PAGE, 5.6)
        axes, at = figure.subplots(), copyable(data)
        for variant, (color, marker, dashes) in STYLES.items():
            slope, intercept = (estimate.value for estimate in line(data, variant))
            ends = np.array([0.0, 1.05 * at.max()])
            axes.plot(ends, intercept + slope * ends, dashes, color=color, lw=1.3)
            axes.plot(at, gains(data, variant)[at.index], marker, color=color, mfc="white", ms=6, label=variant)
        axes.set_xlim(0, 1.05 * at.max())
        place = -np.inf
        for mix, x in at.sort_values().items():
            place = max(x, place + 0.04 * at.max())  # names of mixes that lie together stay apart
            axes.annotate(
                str(mix), (x, 1), (place, 1.03), rotation=32, fontsize=9,
                xycoords=("data", "axes fraction"), textcoords=("data", "axes fraction"), rotation_mode="anchor",
                arrowprops={"arrowstyle": "-", "color": "0.6", "lw": 0.7},
            )  # fmt: skip
        axes.axhline(0, color="0.4", lw=0.8)
        axes.xaxis.set_major_formatter("{x:.0%}")
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set(xlabel="vanilla's bits at positions that can be copied", ylabel="vanilla's bits that the shift saves")
        axes.legend(loc="upper center")
        figure.suptitle(f"A shift's gain by mix of text ({scale} scale, one layer)", fontsize=11)
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State each mix's copyable fraction and gains, and where the gain of K only lies."""
        at = copyable(data)
        told = [
            f"{mix} ({at[mix]:.0%}): {', '.join(f'{gains(data, variant)[mix]:.1%}' for variant in STYLES)}"
            for mix in at.sort_values().index
        ]
        fits = [f"{variant} {fit(data, variant):.2f}" for variant in STYLES]
        there = gains(data, K_ONLY, "bits_copyable").sum() / gains(data, K_ONLY).sum()
        return (
            f"Mix (fraction of vanilla's bits that can be copied): fraction of vanilla's bits that {', '.join(STYLES)} "
            f"save: {'; '.join(told)}. Squared correlation with the copyable fraction: {', '.join(fits)}. Over all "
            f"mixes, {there:.0%} of the gain of {K_ONLY} lies at copyable positions."
        )


def mixes(scale: Scale) -> tuple[str, ...]:
    """Return the mixes of a scale."""
    return SMOKE_MIXES if scale == "smoke" else tuple(MIXES)


def planned(variant: str, mix: str, seed: int, scale: Scale) -> Planned:
    """Plan a run of a variant on a mix."""
    run = text_run(scale)
    assert isinstance(run.task, TextTask)
    task, model = replace(run.task, corpus=run.task.corpus + MIXES[mix]), run.model.replace(n_layers=1)
    if scale == "laptop":
        task, model = replace(task, vocab_size=512), model.replace(d_model=64, n_heads=2, d_vocab=512)
        run = run.replace(steps=400, warmup=60, eval_every=100)
    curve, lr = f"{variant} | {mix}", RATES[scale][variant != VANILLA]
    model = model.replace(attention=VARIANTS[variant])
    config = run.replace(name=f"mixes-{slug(curve)}-{seed}", task=task, model=model, lr=lr, seed=seed, checkpoints=2)
    return Planned(curve, config)


def _row(curve: str, run: "Run", scale: Scale) -> dict[str, Any]:
    from ihlab.measure import text

    variant, mix = curve.split(" | ")
    config, facts = run.config, {"variant": variant, "mix": mix, "lr": run.config.lr, "seed": run.config.seed}
    if run.diverged or not run.checkpoints:
        return facts
    assert isinstance(config.task, TextTask)
    task, n_rows = config.task, ROWS[scale]
    (batch, n_bytes), twice = held_out(task, n_rows), repeated(task, max(4, n_rows // 8))
    classes = held_out_classes(task, n_rows, CONTEXT)
    model = run.model()
    losses = text.token_losses(model, batch.inputs, batch.targets)
    spent = [text.bits_per_byte(np.where(classes == of, losses, 0.0), n_bytes) for of in (text.ELIGIBLE, text.MISLED)]
    measured = {
        "bits_per_byte": text.bits_per_byte(losses, n_bytes), "bits_copyable": spent[0], "bits_misled": spent[1],
        "positions_copyable": float((classes == text.ELIGIBLE).mean()),
        "repeat_gain": text.repeat_gain(text.token_losses(model, twice.inputs, twice.targets), twice.period),
    }  # fmt: skip
    n_params = (run.done or {}).get("n_params")
    return {**facts, "n_params": n_params, **{name: round(value, 6) for name, value in measured.items()}}


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


def fit(data: pd.DataFrame, variant: str) -> float:
    """Return the squared correlation between copyable fraction and gain."""
    at = copyable(data)
    return float(np.corrcoef(at, gains(data, variant)[at.index])[0, 1] ** 2)
