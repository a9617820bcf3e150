"""Which half of the shift follows more hops: layers whose keys alone are shifted against those whose values are."""

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
)
from ihlab.experiments.saved_layer import DEPTH, MARGIN, saved_base
from ihlab.plots.style import printed

if TYPE_CHECKING:
    from ihlab.training.run import Run

K, V = KINDS["k_shift"], KINDS["v_shift"]
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}
"""With eight the exact tests of shares and of ranks can decide among five claims."""


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
        nothing: the value of the token before is no help in finding the token after. Shares of models and ranks, not
        means, since the horizons of seeds are in heaps: those that stand still at three hops, among whom a
        hundredth more or less of k* says nothing, and those that have learned more.
        """
        keys, values = _cells(scale)
        whole, layers = followed(data), DEPTH[scale]
        claim = partial(
            Claim, source="beside Appendix E.1", seeds=int(data["seed"].nunique()), declared="2026-11-23",
            of_paper=False,
        )  # fmt: skip
        by_hand, pointers, plain = predicted(keys), by_pointers(keys), predicted(values)
        beyond = [of_cell(whole, cell)["hops"] > plain for cell in (keys, values)]
        k_star, v_star = (of_cell(horizons(data), cell)["log2_hops"].tolist() for cell in (keys, values))
        share = partial(share_claim, whole, claim)
        return [
            claim(
                sentence="More models with shifted keys alone go beyond vanilla by hand than with shifted values alone",
                measure=f"share of models that follow more than {plain} hops, {cell_name(keys)} less "
                f"{cell_name(values)} ({' and '.join(f'{sum(mine)} of {len(mine)}' for mine in beyond)})",
                estimate=stats.share_difference(*(n for mine in beyond for n in (int(mine.sum()), len(mine)))),
                threshold=0.0,
            ),
            claim(
                sentence="Shifted keys alone are worth no less than a layer by hand, one doubling",
                measure=f"shift in log2 k*, {cell_name(keys)} less {cell_name(values)}",
                estimate=stats.shift(k_star, v_star),
                threshold=1 - MARGIN,
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
