"""Token shifts compared: what each variant of attention learns, and what was predicted before the runs.

The criterion of the predictions: one layer can do induction exactly if, for some weights, a key depends only on the
previous token and the value only on its own token. A variant *learns* a setting if a majority of its seeds reaches 90%
accuracy within the setting's steps. Otherwise it learns it *partly* if its highest accuracy, averaged over
seeds, is more than `GAIN` above vanilla attention's. Steps were chosen from the stored results of vanilla attention,
K only and V only, so that vanilla attention does not learn any setting in time.
"""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.comparison import Cell, cell_rate, cell_rows, learned, steps
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import K_ONLY, V_ONLY, VANILLA
from ihlab.claims.rates import count_in_words
from ihlab.claims.token_shifts import (
    CONTROL,
    CONV_ALL,
    CONV_K,
    CONV_M,
    CONV_O,
    CONV_V,
    DELTA,
    DELTA_CONV,
    LINEAR,
    LINEAR_CONV,
    MULTI,
    OFFSET,
    OWN,
    SMEAR_EMBED,
    SMEAR_READ,
    STEPS,
    TRAPEZOID,
    VARIANTS,
)  # fmt: skip
from ihlab.claims.toy_settings import HOPS, INDUCTION1, INDUCTION2, NGRAM, RECALL_GAP1, RECALL_GAP2, WIDE, InSettings
from ihlab.plots.variants import matrix
from ihlab.training.config import RunConfig

GAIN = 0.3
"""A variant learns partly if its highest accuracy is this much above vanilla attention's."""

YES, PARTLY, NO = "learned", "partly learned", "not learned"

_KEYS = (K_ONLY, OFFSET, CONV_K, CONV_ALL, MULTI)
"""Variants that can mix the previous token into a key but not into the value."""
PREDICTED: dict[Cell, str] = {
    **{(variant, INDUCTION1): NO for variant in VARIANTS},
    **{(variant, INDUCTION1): YES for variant in (*_KEYS, OWN, LINEAR_CONV, DELTA_CONV)},
    **{(variant, INDUCTION1): PARTLY for variant in (SMEAR_EMBED, SMEAR_READ)},
    # The MLP looks two tokens up together, so the residual stream before it must hold both. A previous-token head does
    # it too, but takes longer. What is added after the MLP comes too late.
    **{(variant, NGRAM): NO for variant in (VANILLA, K_ONLY, OFFSET, CONTROL, CONV_K, CONV_M, MULTI)},
    **{(variant, NGRAM): YES for variant in (V_ONLY, SMEAR_EMBED, SMEAR_READ, CONV_V, CONV_O, CONV_ALL)},
    # The second layer's keys read the token before from the residual stream, if the first layer writes it there. Mixed
    # values write it only where a head attends to its own token, which V only learned in two seeds of eight.
    **{(variant, INDUCTION2): NO for variant in (VANILLA, CONTROL, CONV_V)},
    **{(variant, INDUCTION2): YES for variant in (*_KEYS, SMEAR_EMBED, SMEAR_READ, CONV_O, CONV_M)},
    **{(variant, RECALL_GAP1): NO for variant in (VANILLA, CONV_V, CONV_O)},
    **{(variant, RECALL_GAP1): YES for variant in _KEYS},
    (SMEAR_EMBED, RECALL_GAP1): PARTLY,
    **{(variant, RECALL_GAP2): NO for variant in (VANILLA, K_ONLY, OFFSET, SMEAR_EMBED)},
    **{(variant, RECALL_GAP2): YES for variant in (CONV_K, CONV_ALL, MULTI)},
    # Two hops in two layers take a previous token in the keys of both.
    **{(variant, HOPS): NO for variant in (VANILLA, CONV_V, CONV_O, CONV_M)},
    **{(variant, HOPS): YES for variant in _KEYS},
    # Declared after the runs of width 16, before those of width 64. At width 16 no recurrence learned induction, with
    # or without a convolution: a state of 8 x 8 numbers cannot keep 31 tokens of 64 apart, and without softmax their
    # mixture is read. A head as wide as the vocabulary can.
    **{(variant, WIDE): NO for variant in (VANILLA, LINEAR, DELTA, TRAPEZOID)},
    **{(variant, WIDE): YES for variant in (K_ONLY, LINEAR_CONV, DELTA_CONV)},
    **{(variant, WIDE): PARTLY for variant in (SMEAR_EMBED, SMEAR_READ)},
}
"""The prediction for each variant in each setting, in the order of the runs."""


class Shifts(InSettings):
    """Predicted and measured: which variants learn which setting."""

    def __init__(self) -> None:
        settings = tuple(dict.fromkeys(setting for _, setting in PREDICTED))
        super().__init__(
            name="shifts", title="Token shifts compared", declared="2026-11-26",
            variants=tuple(VARIANTS), settings=settings, questions=(),
        )  # fmt: skip

    def fields(self, variant: str, n_heads: int) -> dict[str, Any]:
        """Return the fields that make a variant."""
        return VARIANTS[variant]

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the cells with a prediction; at smoke scale those of K only and vanilla attention."""
        return [cell for cell in PREDICTED if scale != "smoke" or cell[0] in (VANILLA, K_ONLY)]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return the config of a variant in a setting, with the setting's steps."""
        config = super().cell_config(cell, scale)
        return config if scale == "smoke" else config.replace(steps=STEPS[cell[1]])

    def seeds_of(self, setting: str) -> range:
        """Return eight seeds for induction with one layer, and four for the other settings."""
        return range(8 if setting == INDUCTION1 else 4)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Compare every prediction with what was found: 1 if they agree, 0 if not. It is counted, not sampled."""
        return [self._claim(data, cell) for cell in self.cells(scale)]

    def _claim(self, data: pd.DataFrame, cell: Cell) -> Claim:
        (variant, setting), predicted = cell, PREDICTED[cell]
        within = int(cell_rows(data, cell)["horizon"].max())
        highest, vanilla = (_highest(data, each) for each in (cell, (VANILLA, setting)))
        return Claim(
            source="a prediction of our own",
            of_paper=False,
            sentence=f"{variant}, {setting}: {predicted} within {within} steps.",
            measure=f"1 if so ({found(data, cell)}: {count_in_words(steps(data, cell))} seeds get to 90%; highest "
            f"accuracy {highest:.2f}, vanilla {vanilla:.2f}; learning rate {cell_rate(data, cell)})",
            estimate=stats.exact(float(found(data, cell) == predicted)),
            threshold=0.5,
            seeds=len(cell_rows(data, cell)),
            declared=self.declared,
        )

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the matrix of median steps, or of the highest accuracy where a setting is not learned."""
        variants, settings = (list(dict.fromkeys(each)) for each in zip(*self.cells(scale), strict=True))
        ratios = pd.DataFrame(np.nan, index=variants, columns=settings)
        labels = pd.DataFrame("", index=variants, columns=settings)
        for cell in self.cells(scale):
            taken, within = steps(data, cell), float(cell_rows(data, cell)["horizon"].max())
            middle, is_learned = float(np.median(taken)), found(data, cell) == YES
            ratios.loc[cell] = middle / within if is_learned else np.inf
            text = f"{middle:.0f}" if is_learned else f"no ({_highest(data, cell):.2f})"
            labels.loc[cell] = text + " \u2718" * (not _right(data, cell))
        title = (
            f"{self.title}: median steps to 90% accuracy, each variant at its own learning rate ({scale} scale)\n"
            "no: not in a majority of seeds within the setting's steps (highest accuracy). \u2718: a wrong prediction."
        )
        return matrix(ratios, labels, title, "median steps / the setting's steps (8: not learned)")

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State how many predictions were right, and which were not."""
        right = Counter(setting for variant, setting in self.cells(scale) if _right(data, (variant, setting)))
        asked = Counter(setting for _, setting in self.cells(scale))
        told = ", ".join(f"{right[setting]} of {n} ({setting})" for setting, n in asked.items())
        wrong = [
            f"{variant}, {setting} (predicted {PREDICTED[variant, setting]}, found {found(data, (variant, setting))})"
            for variant, setting in self.cells(scale)
            if not _right(data, (variant, setting))
        ]
        return f"Predictions that were right: {told}. Wrong ones: {'; '.join(wrong) or 'none'}."


def found(data: pd.DataFrame, cell: Cell) -> str:
    """Return whether a variant learned a setting: `YES`, `PARTLY` or `NO`, by the rule of the module."""
    if learned(data, cell) > 0.5:
        return YES
    gain = _highest(data, cell) - _highest(data, (VANILLA, cell[1]))
    return PARTLY if gain > GAIN else NO


def _right(data: pd.DataFrame, cell: Cell) -> bool:
    return found(data, cell) == PREDICTED[cell]


def _highest(data: pd.DataFrame, cell: Cell) -> float:
    return float(cell_rows(data, cell)["best"].mean())
