"""Which half of the shift follows more hops: layers whose keys alone are shifted against those whose values are."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale
from ihlab.plots.style import printed
from ihlab.studies.hops import (
    KINDS,
    Cell,
    by_pointers,
    cell_name,
    followed,
    hop_tables,
    horizons,
    horizons_drawn,
    horizons_told,
    of_cell,
    plan_hops,
    predicted,
    share_claim,
    share_in_words,
)
from ihlab.studies.saved_layer import DEPTH, MARGIN, saved_base

if TYPE_CHECKING:
    from ihlab.training.run import Run

K, V = KINDS["k_shift"], KINDS["v_shift"]
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}
"""With eight the exact tests of shares and of ranks can decide among five claims."""
CHANGED = (
    "2026-11-24: a referee of the table saw that ranks take the values' horizons, which hardly vary, for as many "
    "facts, and that interpolation puts models of five whole hops just below what is asked"
)


class ShiftHalves:
    """Hop horizons of L layers whose keys alone, and whose values alone, are shifted, set as in `saved_layer`."""

    name = "shift_halves"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the two cells."""
        return plan_hops(self.name, saved_base(scale), _cells(scale), SEEDS[scale])

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on rows that are the same for all."""
        return hop_tables(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether the keys' half is the one that saves a layer, and how many hops most models follow.

        By hand and with pointers alone alike, shifted keys are worth a layer, a doubling of hops, and shifted values
        nothing: the value of the token before is no help in finding the token after. Shares of models, not means or
        ranks, since the horizons of seeds are in heaps: those that are left at three hops, among whom a
        hundredth more or less of k* says nothing, and those that have learned more. (As it was declared, the second
        claim was by ranks.)
        """
        keys, values = _cells(scale)
        whole, layers = followed(data), DEPTH[scale]
        claim = partial(
            Claim, source="beside Appendix E.1", seeds=int(data["seed"].nunique()), declared="2026-11-23",
            of_paper=False,
        )  # fmt: skip
        by_hand, pointers, plain = predicted(keys), by_pointers(keys), predicted(values)
        beyond = [of_cell(whole, cell)["hops"] > plain for cell in (keys, values)]
        counts = [n for mine in beyond for n in (int(mine.sum()), len(mine))]
        k_star, v_star = (of_cell(horizons(data), cell)["log2_hops"].tolist() for cell in (keys, values))
        layer = partial(claim, sentence="Shifted keys alone are worth no less than a layer by hand, one doubling")
        enough = math.ceil(plain * 2 ** (1 - MARGIN))
        reach = of_cell(whole, keys)["hops"] >= enough
        share = partial(share_claim, whole, claim)
        return [
            claim(
                sentence="More models with shifted keys alone go beyond vanilla by hand than with shifted values alone",
                measure=share_in_words(plain, keys, values, counts),
                estimate=stats.share_difference(*counts),
                threshold=0.0,
            ),
            changed(
                layer(
                    measure=f"share of {len(reach)} models that follow at least {enough} hops, {1 - MARGIN:g} of a "
                    f"doubling of {plain}",
                    estimate=stats.share(int(reach.sum()), len(reach)),
                    threshold=0.5,
                ),
                layer(
                    measure=f"shift in log2 k*, {cell_name(keys)} less {cell_name(values)}",
                    estimate=stats.shift(k_star, v_star),
                    threshold=1 - MARGIN,
                ),
                scale,
                CHANGED,
            ),
            share(f"{layers} layers of shifted values follow {plain} hops, as vanilla by hand", {values: plain}),
            share(f"{layers} layers of shifted keys follow {pointers}, as with pointers alone", {keys: pointers}),
            share(f"They follow {by_hand}, as by hand", {keys: by_hand}),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State k* of every model in one sentence."""
        return horizons_told(data, _cells(scale))

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the horizons of both halves, with what can be followed by hand as lines."""
        return horizons_drawn(data, "Which half of the shift?", scale, [K, V])


def _cells(scale: Scale) -> tuple[Cell, Cell]:
    """Return L layers of shifted keys and of shifted values."""
    return (K, DEPTH[scale]), (V, DEPTH[scale])
