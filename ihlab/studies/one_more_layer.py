"""One more layer with the shift: L + 1 layers of KV shifting against L and against L + 1 vanilla ones; its halves."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale
from ihlab.plots.style import printed
from ihlab.studies.hops import (
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
    predicted,
    share_in_words,
)
from ihlab.studies.saved_layer import DEPTH, SavedLayer, saved_base
from ihlab.studies.saved_layer import SEEDS as BESIDE

if TYPE_CHECKING:
    from ihlab.training.run import Run

VANILLA, KV, K, V = KINDS.values()
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}
"""Of the new cell of KV shifting. With eight the exact test of a share can decide among three claims."""


class OneMoreLayer:
    """Hop horizons of L + 1 layers of the shift and its halves, beside those of `saved_layer`, whose runs it shares."""

    name = "one_more_layer"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the new cells, and two of `saved_layer`'s."""
        new, *others = _cells(scale)
        plan = partial(plan_hops, SavedLayer.name, saved_base(scale))
        return [*plan([new], SEEDS[scale]), *plan(others, BESIDE[scale])]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on rows that are the same for all."""
        return hop_tables(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether the shift still follows more hops at this depth, and whether a layer of it adds any.

        Rows hold 2^L hops: as many as L + 1 layers with the shift follow with pointers alone, and one more than L + 1
        vanilla layers follow by hand. More than that is not seen, so both differences are underestimated, if anything.
        Ranks and shares, not means, since the horizons of seeds are in heaps. The two claims about the halves were
        declared when the numbers of the other three were known; more claims only make theirs stricter.
        """
        cells = new, shallower, vanilla, keys, values = _cells(scale)
        k_star = {cell: of_cell(horizons(data), cell)["log2_hops"].tolist() for cell in cells}
        hops, most = followed(data), 2 ** DEPTH[scale]
        whole, plain = of_cell(hops, new)["hops"], predicted(vanilla)
        beyond = [of_cell(hops, cell)["hops"] > plain for cell in (keys, values)]
        counts = [n for mine in beyond for n in (int(mine.sum()), len(mine))]
        claim = partial(Claim, source="beside Appendix E.1", declared="2026-11-24", of_paper=False)

        def more(sentence: str, one: Cell, other: Cell) -> Claim:
            return claim(
                sentence=sentence,
                measure=f"shift in log2 k*, {cell_name(one)} less {cell_name(other)} ({len(k_star[one])} and "
                f"{len(k_star[other])} models)",
                estimate=stats.shift(k_star[one], k_star[other]),
                threshold=0.0,
                seeds=len(k_star[one]),
            )

        return [
            more("At equal depth the shift follows more hops here, too", new, vanilla),
            more("One more layer with the shift follows more hops", new, shallower),
            claim(
                sentence=f"Most of the models with {new[1]} layers follow all {most} hops, as with pointers alone",
                measure=f"share of {len(whole)} models whose errors are at most 0.1 up to {most} hops",
                estimate=stats.share(int((whole == most).sum()), len(whole)),
                threshold=0.5,
                seeds=len(whole),
            ),
            more("Shifted keys alone follow more hops than shifted values alone, here, too", keys, values),
            claim(
                sentence="More models with shifted keys alone go beyond vanilla by hand than with shifted values alone",
                measure=share_in_words(plain, keys, values, counts),
                estimate=stats.share_difference(*counts),
                threshold=0.0,
                seeds=counts[1],
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State k* of every model in one sentence."""
        return horizons_told(data, _cells(scale))

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the horizons against layers, with what can be followed by hand as lines."""
        return horizons_drawn(data, "One more layer", scale, KINDS.values())


def _cells(scale: Scale) -> tuple[Cell, Cell, Cell, Cell, Cell]:
    """Return the shift with L + 1 layers; the shift with L and vanilla with L + 1; keys and values alone with L + 1."""
    layers = DEPTH[scale]
    return (KV, layers + 1), (KV, layers), (VANILLA, layers + 1), (K, layers + 1), (V, layers + 1)
