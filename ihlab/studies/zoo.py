"""The zoo: every attention variant in every setting, as one matrix of steps relative to KV shifting's."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.comparison import Comparison, Question, ratio
from ihlab.claims.experiment import Scale
from ihlab.claims.stats import CONFIDENCE
from ihlab.claims.variants import (
    ADDED,
    AFTER_NORM,
    BEFORE_NORM,
    CANON,
    CLIP,
    DIFFERENTIAL,
    GATE,
    HOPS,
    INDUCTION1,
    INDUCTION2,
    INPUT_GATE,
    KV,
    MDHA,
    MLA,
    MLA_KV,
    NGRAM,
    PROJECT,
    QKV,
    RECALL1,
    RECALL2,
    RWKV,
    SELECTIVE,
    SUM1,
    VANILLA,
    WINDOW3,
    WINDOW4,
    Cell,
    K,
    V,
    learned,
    steps,
)
from ihlab.plots.style import new_figure, printed
from ihlab.plots.variants import matrix

MOST = 8.0
"""Ratio at which the colours end."""

BOUND = {(True, False): "\u2265 ", (False, True): "\u2264 ", (True, True): "~ ", (False, False): ""}
"""Sign before a ratio where some seeds never get there: of the variant, of KV shifting."""

_OURS = "a prediction of our own"


class Zoo(Comparison):
    """Variants by settings; what differs from KV shifting beyond chance is marked."""

    name = "zoo"
    title = "Attention variants"
    variants = (
        KV, K, V, VANILLA, WINDOW3, WINDOW4, QKV, GATE, SUM1, CLIP, PROJECT, INPUT_GATE, RWKV, BEFORE_NORM, AFTER_NORM,
        ADDED, CANON, MDHA, MLA, MLA_KV, DIFFERENTIAL, SELECTIVE,
    )  # fmt: skip
    settings = (INDUCTION1, INDUCTION2, NGRAM, HOPS, RECALL1, RECALL2)
    declared = "2026-11-22"
    questions = (
        Question(
            INDUCTION1, V, "much slower", KV, "One layer with V only learns induction much later, if at all.", _OURS,
        ),
        Question(INDUCTION1, VANILLA, "much slower", KV, "So does one layer of vanilla attention.", _OURS),
    )  # fmt: skip

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the matrix."""
        ratios, labels = relative(data, self.variants, self.settings)
        figure = new_figure(9.6, 0.3 * len(self.variants) + 2.0)
        axes = figure.subplots()
        image = matrix(axes, ratios, labels, MOST)
        bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.02)
        ticks = [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8]
        bar.set_ticks(np.log2(ticks).tolist(), labels=["1/8 or less", "1/4", "1/2", "1", "2", "4", "8 or never"])
        bar.set_label("steps to 90% accuracy / KV shifting's")
        steps_of_all = sorted(data["horizon"].unique())
        figure.suptitle(
            f"Attention variants ({scale} scale): steps relative to KV shifting\n* differs from it beyond chance; n/m: "
            f"seeds that get there; never: not within {steps_of_all[0]} to {steps_of_all[-1]} steps",
            fontsize=11,
        )
        return figure


def relative(data: pd.DataFrame, variants: Sequence[str], settings: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the ratios of steps to KV shifting's, variants by settings, and the text of each cell.

    A ratio is inf where a variant never gets there and NaN where there is none, with the text "". Marked with * is one
    that differs from 1 at .05, adjusted by Holm for the whole matrix. Where KV shifting itself never gets there, the
    ratio of a variant that does is a bound.
    """
    known: dict[Cell, stats.Estimate] = {
        (variant, setting): ratio(data, (variant, setting), (KV, setting))
        for setting in settings
        for variant in variants
        if variant != KV and steps(data, (variant, setting))
    }
    adjusted = stats.holm([estimate.p_value(1.0) or 1.0 for estimate in known.values()])
    marked = {cell for cell, p in zip(known, adjusted, strict=True) if p <= 1 - CONFIDENCE}
    ratios = pd.DataFrame(np.nan, index=list(variants), columns=list(settings))
    labels = pd.DataFrame("", index=list(variants), columns=list(settings))
    for setting in settings:
        kv = steps(data, (KV, setting))
        if np.isfinite(kv).any():
            few = "" if np.isfinite(kv).all() else f" ({np.isfinite(kv).sum()}/{len(kv)})"
            ratios.loc[KV, setting], labels.loc[KV, setting] = 1.0, f"{np.median(kv):.0f} steps{few}"
        elif kv:
            ratios.loc[KV, setting], labels.loc[KV, setting] = np.inf, "never"
    for cell, estimate in known.items():
        reached, of = learned(data, cell)
        kv_reached, kv_of = learned(data, (KV, cell[1]))
        bound = BOUND[reached < of, kv_reached < kv_of]
        some = f" ({reached}/{of})" if reached < of else ""
        text = f"{bound}{estimate.value:.2g}{some}" if reached else "never"
        ratios.loc[cell], labels.loc[cell] = estimate.value if reached else np.inf, text + "*" * (cell in marked)
    return ratios, labels
