"""One more layer with the shift: L + 1 layers of KV shifting against L of its own and L + 1 vanilla ones."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.experiment import Planned, Scale
from ihlab.experiments.hops import (
    KINDS,
    Cell,
    cell_name,
    followed,
    hop_tables,
    horizons,
    horizons_drawn,
    horizons_told,
    of_cell,
    plan_hops,
)
from ihlab.experiments.saved_layer import DEPTH, SavedLayer, saved_base
from ihlab.experiments.saved_layer import SEEDS as BESIDE
from ihlab.plots.style import printed

if TYPE_CHECKING:
    from ihlab.training.run import Run

KV, VANILLA = KINDS["kv_shift"], KINDS["vanilla"]
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}
"""Of the new cell. With eight the exact test of a share can decide among three claims."""


class OneMoreLayer:
    """Hop horizons of L + 1 layers of KV shifting, beside those of `saved_layer`, whose runs it shares."""

    name = "one_more_layer"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the new cell, and two of `saved_layer`'s."""
        new, *beside = _cells(scale)
        plan = partial(plan_hops, SavedLayer.name, saved_base(scale))
        return [*plan([new], SEEDS[scale]), *plan(beside, BESIDE[scale])]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on rows that are the same for all."""
        return hop_tables(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether the shift still follows more hops at this depth, and whether a layer of it adds any.

        Rows hold 2^L hops: as many as L + 1 layers with the shift follow with pointers alone, and one more than L + 1
        vanilla layers follow by hand. More than that is not seen, so both differences are underestimated, if anything.
        Ranks and shares, not means, since the horizons of seeds are in heaps.
        """
        cells = new, shallower, vanilla = _cells(scale)
        k_star = {cell: of_cell(horizons(data), cell)["log2_hops"].tolist() for cell in cells}
        whole, most = of_cell(followed(data), new)["hops"], 2 ** DEPTH[scale]
        claim = partial(
            Claim, source="beside Appendix E.1", seeds=len(whole), declared="2026-11-24", of_paper=False,
        )  # fmt: skip

        def more(sentence: str, other: Cell) -> Claim:
            return claim(
                sentence=sentence,
                measure=f"shift in log2 k*, {cell_name(new)} less {cell_name(other)} ({len(whole)} and "
                f"{len(k_star[other])} models)",
                estimate=stats.shift(k_star[new], k_star[other]),
                threshold=0.0,
            )

        return [
            more("At equal depth the shift follows more hops here, too", vanilla),
            more("One more layer with the shift follows more hops", shallower),
            claim(
                sentence=f"Most of the models with {new[1]} layers follow all {most} hops, as with pointers alone",
                measure=f"share of {len(whole)} models whose errors are at most 0.1 up to {most} hops",
                estimate=stats.share(int((whole == most).sum()), len(whole)),
                threshold=0.5,
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State k* of every model in one sentence."""
        return horizons_told(data, _cells(scale))

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the horizons against layers, with what can be followed by hand as lines."""
        return horizons_drawn(data, "One more layer", scale, [VANILLA, KV])


def _cells(scale: Scale) -> tuple[Cell, Cell, Cell]:
    """Return the shift with L + 1 layers, then what it is compared with: the shift with L and vanilla with L + 1."""
    layers = DEPTH[scale]
    return (KV, layers + 1), (KV, layers), (VANILLA, layers + 1)
