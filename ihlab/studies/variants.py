"""Attention variants on toy tasks: Figures 7, 10 and 11, Appendix G's other places, Table 15, and the zoo.

This file is a table. It lists the variants (fields of the model), the settings (a task and the model that learns it)
and, experiment by experiment, the questions about them. `ihlab.claims.comparison` trains, measures and judges.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, at_floor, changed
from ihlab.claims.comparison import Kind, Question, cell_rows, learned, ratio, steps
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import K_ONLY, KV, V_ONLY, VANILLA
from ihlab.claims.rates import count_in_words
from ihlab.claims.toy_settings import (
    HOPS,
    INDUCTION1,
    INDUCTION2,
    NARROW,
    NGRAM,
    NO_POSITIONS2,
    RECALL_GAP1,
    RECALL_GAP2,
    InSettings,
)
from ihlab.plots.variants import matrix

# The variants

WINDOW3, WINDOW4, QKV = "KV, window 3", "KV, window 4", "QKV"
GATE, SUM1, CLIP, PROJECT = "KV gate", "KV, sum 1", "KV, clipped to 0-1", "KV, projected to 0-1"
RWKV, BEFORE_NORM, AFTER_NORM, ADDED = "RWKV shift", "stream, before norm", "stream, after norm", "stream, added"
MDHA, MLA, MLA_KV, DIFFERENTIAL = "MDHA", "MLA", "MLA, one key, one value", "differential"

ZOO_VARIANTS: dict[str, dict[str, Any]] = {
    KV: {"attention": "kv_shift"},
    K_ONLY: {"attention": "k_shift"},
    V_ONLY: {"attention": "v_shift"},
    VANILLA: {},
    WINDOW3: {"attention": "kv_shift", "shift_start": "uniform", "shift_window": 3},
    WINDOW4: {"attention": "kv_shift", "shift_start": "uniform", "shift_window": 4},
    QKV: {"attention": "qkv_shift"},
    GATE: {"attention": "kv_gate"},
    SUM1: {"attention": "kv_sum1"},
    CLIP: {"attention": "kv_clip"},
    PROJECT: {"attention": "kv_project"},
    "gate of the input": {"attention": "input_gate"},
    RWKV: {"attention": "rwkv_shift"},
    BEFORE_NORM: {"stream_shift": "before_norm"},
    AFTER_NORM: {"stream_shift": "after_norm"},
    ADDED: {"stream_shift": "added"},
    "Canon A, B, C, D": {"canon": "ABCD"},
    MDHA: {"attention": "mdha"},
    MLA: {"attention": "mla"},
    MLA_KV: {"attention": "mla_kv"},
    DIFFERENTIAL: {"attention": "differential"},
    "selective": {"attention": "selective"},
}
"""Fields of the model that make each variant, by its label, in the order of the zoo's matrix."""

RANKS = (2, 4, 8, 16)
"""Compared ranks of the latent vector, from an eighth of the laptop's d_model to the full width."""
MLA_AT_RANKS: dict[str, dict[str, Any]] = {
    f"{name}, rank {rank}": {**ZOO_VARIANTS[name], "mla_rank": rank} for rank in RANKS for name in (MLA, MLA_KV)
}
CANON_AT_PLACES: dict[str, dict[str, Any]] = {f"Canon {place}": {"canon": place} for place in "ABCD"}
VARIANTS = {**ZOO_VARIANTS, **MLA_AT_RANKS, **CANON_AT_PLACES}


def variant_fields(variant: str, n_heads: int) -> dict[str, Any]:
    """Return the fields that make a variant of a vanilla model with `n_heads` heads."""
    if variant != DIFFERENTIAL:
        return VARIANTS[variant]
    # Half the heads, each of twice the width.
    return {**VARIANTS[variant], "n_heads": n_heads // 2, "n_key_value_heads": None, "d_head": None}


class Variants(InSettings):
    """A comparison of some of the variants in some of the settings."""

    def fields(self, variant: str, n_heads: int) -> dict[str, Any]:
        """Return the fields that make a variant of a vanilla model with `n_heads` heads."""
        return variant_fields(variant, n_heads)


# The experiments


def ask(
    settings: Sequence[str], variants: Sequence[str], kind: Kind, other: str, sentence: str, source: str,
    of_paper: bool = False, declared: str = "",
) -> list[Question]:  # fmt: skip
    """Return one question per setting and variant. In `sentence` they are written as {setting} and {one}."""
    return [
        Question(setting, one, kind, other, sentence.format(setting=setting, one=one), source, of_paper, declared)
        for setting in settings
        for one in variants
    ]


_OURS = "a prediction of our own"
_HALVES = "The shifting of key and value both play an important role: without the {} shift, {} is learned later."
_FIGURE_7A = "section 4.5, Figure 7a, says so of a 1.5B language model's loss"
_LONGER = "A longer shift window ({one}) does not improve: {setting}."
_AS_FAST = "{} is learned as fast with the {} shift alone, within a factor of 1.25."

# The paper trains language models of 1.5B and discusses their loss. About induction heads it says only that a window of
# 2 is enough; only those questions are the paper's. Each half of the shift is tested where it is needed. Induction with
# one layer needs the previous token's key, which only the key shift provides. A 3-gram needs the previous token and the
# current one together. The value shift gives both to a head that attends to its own position.
FIGURE7 = Variants(
    name="figure7", title="Keys or values alone, and longer windows", declared="2026-11-22",
    variants=(VANILLA, KV, K_ONLY, V_ONLY, WINDOW3, WINDOW4),
    settings=(INDUCTION1, INDUCTION2, NO_POSITIONS2, NGRAM, RECALL_GAP1, RECALL_GAP2),
    many_seeds=(INDUCTION1, NGRAM, RECALL_GAP1),
    questions=(
        Question(INDUCTION1, V_ONLY, "slower", KV, _HALVES.format("key", "induction with one layer"), _FIGURE_7A),
        Question(INDUCTION1, K_ONLY, "slower", KV, _HALVES.format("value", "induction with one layer"), _FIGURE_7A),
        Question(NGRAM, V_ONLY, "slower", KV, _HALVES.format("key", "a table of 3-grams"), _FIGURE_7A),
        Question(NGRAM, K_ONLY, "slower", KV, _HALVES.format("value", "a table of 3-grams"), _FIGURE_7A),
        *ask((INDUCTION1, INDUCTION2), (WINDOW3, WINDOW4), "not faster", KV, _LONGER,
             "section 4.5: a window of 2 is sufficient for induction heads", of_paper=True),
        *ask((NGRAM, RECALL_GAP1), (WINDOW3, WINDOW4), "not faster", KV, _LONGER,
             "section 4.5, Figure 7b, says so of a 1.5B language model's loss"),
        Question(INDUCTION1, K_ONLY, "equal", KV, _AS_FAST.format("Induction with one layer", "key"), _OURS),
        Question(NGRAM, V_ONLY, "equal", KV, _AS_FAST.format("A table of 3-grams", "value"), _OURS),
        Question(RECALL_GAP1, K_ONLY, "equal", KV, _AS_FAST.format("Recall", "key"), _OURS),
        Question(RECALL_GAP2, WINDOW3, "much faster", KV,
                 "A window of 3 learns what one of 2 does not where the value is two places after its key.", _OURS),
    ),
)  # fmt: skip

# Constraints on alpha and beta (Appendix F.1). The paper tries a gate, and numbers in [0, 1], which can mean clipped
# weights or projected steps. It discusses the loss of a 1.5B language model. Numbers that sum to 1 without a sigmoid
# are our addition. 3-grams are learned in about 70 steps and evaluated every ten, so smaller differences in steps are
# not resolved. Two claims on 3-grams hold by less than that: those of "KV gate" and "KV, projected to 0-1".
_OF_LOSS = "Appendix F.1, Figure 10, says so of a 1.5B language model's loss"
FIGURE10 = Variants(
    name="figure10", title="Constraints on the mixing weights", declared="2026-11-22",
    variants=(KV, GATE, SUM1, CLIP, PROJECT),
    settings=(INDUCTION1, INDUCTION2, NGRAM),
    many_seeds=(INDUCTION1, NGRAM),
    questions=(
        *(
            Question(setting, one, "not faster", KV,
                     f"Using more controls ({one}) does not make the model learn better: {setting}.",
                     "beside Appendix F.1" if one == SUM1 else _OF_LOSS)
            for setting in (INDUCTION1, INDUCTION2, NGRAM)
            for one in (GATE, SUM1, CLIP, PROJECT)
        ),
        Question(INDUCTION1, GATE, "equal", KV,
                 "With one layer a gate is as fast as free weights, within a factor of 1.25.", _OURS),
    ),
)  # fmt: skip

# Queries shifted as well (Appendix G), and Primer's convolutions (MDHA). The paper says "not as good as KV shifting,
# and not even as vanilla" about the benchmarks of a 19B model, whose losses are "similar". For the steps of toy tasks,
# both are our own questions.
_OF_BENCHMARKS = "Appendix G says it of benchmarks of a 19B model"
FIGURE11 = Variants(
    name="figure11", title="Queries shifted as well", declared="2026-11-22",
    variants=(VANILLA, KV, QKV, MDHA),
    settings=(INDUCTION1, INDUCTION2, NGRAM, RECALL_GAP1),
    many_seeds=(INDUCTION1, NGRAM, RECALL_GAP1),
    questions=(
        *ask((INDUCTION1, INDUCTION2, RECALL_GAP1), (QKV,), "not faster", KV,
             "The shifting of Q is difficult to contribute to the formation of induction heads: {setting}.",
             "Appendix G", of_paper=True),
        *ask((INDUCTION1, INDUCTION2, NGRAM, RECALL_GAP1), (QKV,), "slower", KV,
             "Shifting QKV is not as good as shifting KV: {setting}.", _OF_BENCHMARKS),
        *ask((INDUCTION2, NGRAM), (QKV,), "slower", VANILLA,
             "Shifting QKV is not even as good as vanilla attention: {setting}.", _OF_BENCHMARKS),
    ),
)  # fmt: skip


class Elsewhere(Variants):
    """A comparison of places to shift. Only variants that learn at some width get a verdict on width."""

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the questions; leave the paper's sentence on width untested for a variant that learns at no width."""
        claims = super().claims(data, scale)
        for i, question in enumerate(self.questions):
            widths = [learned(data, (question.one, setting)) for setting in self.settings]
            if question.of_paper and question.setting == NARROW and at_floor(*widths):
                never = f"In no seed does {question.one} learn induction at either width"
                why = f"{never}: it lacks something else than width."
                untested = replace(claims[i], measure="", estimate=None, threshold=math.nan, why=why)
                when = "2026-11-24: what learns at no width says nothing about what it takes"
                claims[i] = changed(untested, claims[i], scale, when)
        return claims

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every variant's steps, and what two widths do not show."""
        return (
            f"{super().summary(data, scale)} One layer of vanilla attention learns induction at neither width, so that "
            "these rows say what a narrow layer can learn with a shift elsewhere, not that width was what it lacked."
        )


# Does shifting elsewhere in the model reduce the width that induction requires (Appendix G)? A shift of the normalised
# residual stream, before the projections, is KV shifting with one number per layer (`ihlab.model.input_shift`). If
# equation 5 reduces the width, the paper's sentence cannot hold for this shift. A shift of the residual stream also
# shifts queries. RWKV shifts the inputs of keys and values, and Canon B keys and values themselves. Both are in the
# same place as KV shifting, so the sentence is not about them. A run ends at 90%, so learning later does not count as
# less accurate.
_WIDTH = "Shifting elsewhere can not alleviate the width requirement of induction heads: {one}."
ELSEWHERE = Elsewhere(
    name="elsewhere", title="Shifting elsewhere", declared="2026-11-22",
    variants=(VANILLA, KV, RWKV, BEFORE_NORM, AFTER_NORM, ADDED, *CANON_AT_PLACES),
    settings=(NARROW, INDUCTION1),
    questions=(
        *ask((NARROW,), (RWKV,), "less accurate", KV, _WIDTH,
             "Appendix G is not about it: it shifts the inputs of keys and values"),
        *ask((NARROW,), (BEFORE_NORM,), "less accurate", KV, _WIDTH, "Appendix G", of_paper=True),
        *ask((NARROW,), (AFTER_NORM,), "less accurate", KV, _WIDTH,
             "Appendix G; this one shifts keys, values and queries by one number a layer", of_paper=True),
        *ask((NARROW,), (ADDED, "Canon A"), "less accurate", KV, _WIDTH, "Appendix G", of_paper=True),
        *ask((NARROW,), ("Canon B",), "less accurate", KV, _WIDTH,
             "Appendix G is not about it: it shifts queries, keys and values"),
        *ask((NARROW,), ("Canon C", "Canon D"), "less accurate", KV, _WIDTH, "Appendix G", of_paper=True),
        *ask((INDUCTION1,), (BEFORE_NORM, AFTER_NORM, ADDED), "slower", KV,
             "In the place of K and V a shift is the most suitable for induction heads: {one} is slower.",
             "Appendix G, asked after the runs in the measure of the other comparisons",
             of_paper=True, declared="2026-11-23"),
        Question(NARROW, VANILLA, "less accurate", KV,
                 "One narrow layer of KV shifting learns induction, and of vanilla attention not.", "a control"),
    ),
)  # fmt: skip


class Table15(Variants):
    """A comparison of latent attention variants: does shifting gain more with the narrowest latent vector?"""

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the gain at each rank, and whether it is greater at the narrowest than at the widest."""
        narrow, wide = (_gains(data, rank) for rank in (RANKS[0], RANKS[-1]))
        gain = "log of the steps to 90% accuracy, MLA / MLA with shifts of the same seed (never: the horizon)"
        ranks = f"at rank {RANKS[0]} less at rank {RANKS[-1]}"
        claim = partial(
            Claim,
            source="from Appendix J's argument",
            of_paper=False,
            sentence=f"Shifting gains more with a latent vector of {RANKS[0]} than with one of {RANKS[-1]} ({NGRAM}).",
            threshold=0.0,
            seeds=len(narrow),
            declared=self.declared,
        )
        narrower = changed(
            claim(measure=f"{gain}, {ranks} by seed, {NGRAM}: median", estimate=stats.paired(narrow, wide)),
            claim(measure=f"{gain}, {ranks}, {NGRAM}", estimate=stats.shift(narrow, wide)),
            scale,
            "2026-11-26: runs of the same seed are compared within the seed, at both ranks",
        )
        return [*super().claims(data, scale), narrower]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every variant's steps, and how often the widest latent vector learns what vanilla attention learns."""
        widest, vanilla = (
            count_in_words(steps(data, (variant, INDUCTION2))) for variant in (f"{MLA}, rank {RANKS[-1]}", VANILLA)
        )
        return (
            f"{super().summary(data, scale)} Without shifts a latent vector of {RANKS[-1]}, the widest, learns "
            f"induction in {widest} seeds, and vanilla attention in {vanilla}."
        )


def _gains(data: pd.DataFrame, rank: int) -> list[float]:
    """Return each seed's log of steps without shifts / steps with them. A run that never learns took the horizon."""
    cells = (cell_rows(data, (f"{name}, rank {rank}", NGRAM)) for name in (MLA, MLA_KV))
    plain, shifted = (np.minimum(cell["steps_to_90"], cell["horizon"]) for cell in cells)
    return [math.log(a / b) for a, b in zip(plain, shifted, strict=True)]


# Latent attention with one shifted key and one shifted value (Appendix J). The paper argues that the latent vector is a
# bottleneck of width, so shifting should help more the narrower it is. It compares one rank; this experiment has four.
# Whether the gain grows is tested on 3-grams, which nearly all variants learn. On induction a rank of 2 is too narrow
# with and without shifts, and hardly any rank learns without them, so the gain would only reflect the length of runs.
TABLE15 = Table15(
    name="table15", title="Latent attention with and without shifts", declared="2026-11-22",
    variants=(VANILLA, KV, *MLA_AT_RANKS),
    settings=(INDUCTION2, NGRAM),
    many_seeds=(NGRAM,),
    questions=tuple(
        Question(setting, f"{MLA}, rank {rank}", "slower", f"{MLA_KV}, rank {rank}",
                 f"KV shifting enhances MLA (latent vector of {rank}; {setting}).",
                 "Appendix J says so of losses on text (Table 15), not of toy tasks")
        for setting in (INDUCTION2, NGRAM)
        for rank in RANKS
    ),
)  # fmt: skip


class Zoo(Variants):
    """A comparison of all variants, drawn as a matrix."""

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the matrix of steps relative to KV shifting."""
        horizons = sorted(data["horizon"].unique())
        title = (
            "Steps that attention variants need, relative to KV shifting\n"
            "*: differs beyond chance. 5/8: seeds that get there. "
            f"Never: not within {horizons[0]} to {horizons[-1]} steps.\n"
            "Where KV shifting never gets there (recall, gap 2), relative to the steps of a run."
        )
        return matrix(*relative(data, self.variants, self.settings), title)


def relative(data: pd.DataFrame, variants: Sequence[str], settings: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the ratios of steps to KV shifting's, variants by settings, and the text of each cell.

    A ratio is inf if a variant never reaches 90%, and NaN with the text "" if there are no runs. A star marks a ratio
    that differs from 1 at .05, adjusted by Holm for the whole matrix. A sign marks a bound: some seeds of the variant
    (at least), of KV shifting (at most) or of both never reach 90%. If no seed of KV shifting reaches 90%, steps are
    divided by the steps of a run, and the texts are steps.
    """
    cells = [(variant, setting) for setting in settings for variant in variants if steps(data, (variant, setting))]
    compared = {cell: ratio(data, cell, (KV, cell[1])) for cell in cells if cell[0] != KV}
    adjusted = stats.holm([estimate.p_value(1.0) or 1.0 for estimate in compared.values()])
    starred = {cell for cell, p in zip(compared, adjusted, strict=True) if p <= 1 - stats.CONFIDENCE}
    signs = {(True, False): "\u2265 ", (False, True): "\u2264 ", (True, True): "~ ", (False, False): ""}
    ratios = pd.DataFrame(np.nan, index=list(variants), columns=list(settings))
    labels = pd.DataFrame("", index=list(variants), columns=list(settings))
    for cell in cells:
        reached, kv_reached = (np.isfinite(steps(data, each)) for each in (cell, (KV, cell[1])))
        value, text = 1.0, f"{np.median(steps(data, cell)):.0f} steps"
        if not kv_reached.any():
            value = float(np.median(steps(data, cell))) / float(cell_rows(data, cell)["horizon"].max())
        elif cell in compared:
            value = compared[cell].value
            text = f"{signs[not reached.all(), not kv_reached.all()]}{value:.2g}"
        text += "" if reached.all() else f" ({reached.sum()}/{len(reached)})"
        ratios.loc[cell] = value if reached.any() else np.inf
        labels.loc[cell] = (text if reached.any() else "never") + "*" * (cell in starred)
    return ratios, labels


ZOO = Zoo(
    name="zoo", title="Attention variants", declared="2026-11-22",
    variants=tuple(ZOO_VARIANTS),
    settings=(INDUCTION1, INDUCTION2, NGRAM, HOPS, RECALL_GAP1, RECALL_GAP2),
    questions=(
        Question(INDUCTION1, V_ONLY, "much slower", KV,
                 "One layer with V only learns induction much later, if at all.", _OURS),
        Question(INDUCTION1, VANILLA, "much slower", KV, "So does one layer of vanilla attention.", _OURS),
    ),
)  # fmt: skip

COMPARISONS = (FIGURE7, FIGURE10, FIGURE11, ELSEWHERE, TABLE15, ZOO)
