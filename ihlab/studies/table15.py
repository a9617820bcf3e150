"""Table 15: multi-head latent attention gains from one shifted key and one shifted value (Appendix J).

The paper argues that the latent vector is a bottleneck of width, so that shifting should help more the narrower it is.
It compares one rank; here are four. Whether the gain grows is asked of 3-grams, which nearly all learn: in induction a
latent vector of 2 is too narrow for either, and without shifts hardly any rank gets there, so that the gain would say
how long the runs were.
"""

import math

import numpy as np
import pandas as pd

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.comparison import Comparison, Question
from ihlab.claims.experiment import Scale
from ihlab.claims.rates import count_in_words
from ihlab.claims.variants import (
    INDUCTION2,
    KV,
    MLA,
    MLA_KV,
    NGRAM,
    RANKS,
    VANILLA,
    Cell,
    latent,
    of_cell,
    steps,
)


class Table15(Comparison):
    """MLA with and without shifts at four ranks of the latent vector, two layers of it and one."""

    name = "table15"
    title = "Latent attention with and without shifts"
    variants = (VANILLA, KV, *(latent(name, rank) for rank in RANKS for name in (MLA, MLA_KV)))
    settings = (INDUCTION2, NGRAM)
    declared = "2026-11-22"
    many = (NGRAM,)
    questions = tuple(
        Question(
            setting, latent(MLA, rank), "slower", latent(MLA_KV, rank),
            f"KV shifting enhances MLA (latent vector of {rank}; {setting}).",
            "Appendix J says so of losses on text (Table 15), not of toy tasks",
        )
        for setting in settings
        for rank in RANKS
    )  # fmt: skip

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the gain at each rank, and whether it is greater at the narrowest than at the widest."""
        narrow, wide = (_gains(data, rank) for rank in (RANKS[0], RANKS[-1]))
        narrower = Claim(
            source="from Appendix J's argument",
            of_paper=False,
            sentence=f"Shifting gains more with a latent vector of {RANKS[0]} than with one of {RANKS[-1]} ({NGRAM}).",
            measure="log of the steps to 90% accuracy, MLA / MLA with shifts of the same seed (never: the horizon), "
            f"at rank {RANKS[0]} less at rank {RANKS[-1]}, {NGRAM}",
            estimate=stats.shift(narrow, wide),
            threshold=0.0,
            right_side="above",
            seeds=len(narrow),
            declared=self.declared,
        )
        return [*super().claims(data, scale), narrower]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every variant's steps, and how often the widest latent vector learns what vanilla attention does."""
        widest, plain = (
            count_in_words(steps(data, (variant, INDUCTION2))) for variant in (latent(MLA, RANKS[-1]), VANILLA)
        )
        return (
            f"{super().summary(data, scale)} Without shifts a latent vector of {RANKS[-1]}, the widest, learns "
            f"induction in {widest} seeds, and vanilla attention in {plain}."
        )


def _gains(data: pd.DataFrame, rank: int) -> list[float]:
    """Return by how much shifting shortens each seed's way, as a log; a run that never gets there took the horizon."""
    plain, shifted = (_capped(data, (latent(name, rank), NGRAM)) for name in (MLA, MLA_KV))
    return [math.log(a / b) for a, b in zip(plain, shifted, strict=True)]


def _capped(data: pd.DataFrame, cell: Cell) -> list[float]:
    runs = of_cell(data, cell)
    return np.minimum(runs["steps_to_90"], runs["horizon"]).tolist()
