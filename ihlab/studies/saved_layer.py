"""Whether the shift saves a layer of multi-hop induction: L layers with it against L and L + 1 without."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale
from ihlab.plots.style import printed
from ihlab.studies.figure8_law import law_base
from ihlab.studies.hops import (
    KINDS,
    Cell,
    by_pointers,
    hop_tables,
    horizons,
    horizons_drawn,
    horizons_told,
    of_cell,
    plan_hops,
    predicted,
)
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from ihlab.training.run import Run

VANILLA, KV = KINDS["vanilla"], KINDS["kv_shift"]
DEPTH = {"smoke": 1, "laptop": 3, "gpu": 3, "paper": 4}
"""L, the layers with the shift."""
SEEDS = {"smoke": 2, "laptop": 5, "gpu": 8, "paper": 8}
STEPS = {"smoke": 20, "laptop": 12_000, "gpu": 48_000, "paper": 100_000}
"""The same for all three cells. On a laptop only the horizons of three vanilla layers stand still (docs/LOG.md)."""
CHANGED = "2026-11-23: a referee of the table saw that rows of so few hops leave hardly any room for more than a layer"
MARGIN = 0.3
"""How far from a whole layer, in doublings of k*, still counts as a layer."""


def saved_base(scale: Scale) -> RunConfig:
    """Return the base config of a scale: that of `figure8_law`, with rows of one hop more than L + 1 layers follow."""
    hops = 2 ** DEPTH[scale]
    return law_base(scale, hops).but(steps=STEPS[scale])


class SavedLayer:
    """Hop horizons of L layers of KV shifting, of L vanilla layers and of L + 1, all trained for the same steps."""

    name = "saved_layer"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the three cells."""
        return plan_hops(self.name, saved_base(scale), _cells(scale), SEEDS[scale])

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on rows that are the same for all."""
        return hop_tables(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge differences of log2 k*: whether the shift is worth a layer, and a layer a doubling.

        By hand and with pointers alone alike, L layers with the shift follow as many hops as L + 1 without, so that
        these claims need not know which of the two models learn. By either a layer is a doubling to within the margin.

        That it is *no more* than a doubling cannot be tested: from the number by hand of L vanilla layers, 2^(L-1) - 1,
        rows of 2^L hops leave room for hardly more. (As they were declared, two claims tried.)
        """
        table, layers = horizons(data), DEPTH[scale]
        shifted, fewer, more = (of_cell(table, cell)["log2_hops"].tolist() for cell in _cells(scale))
        claim = partial(
            Claim, source="beside Appendix E.1", seeds=int(data["seed"].nunique()), declared="2026-11-23",
            of_paper=False,
        )  # fmt: skip
        told, plain = f"{KV} with {layers} layers", f"vanilla with {layers}"
        by_hand, room = predicted((KV, layers)), 2**layers

        def between(a: Sequence[float], b: Sequence[float], what: str) -> Callable[..., Claim]:
            return partial(claim, measure=f"difference in log2 k*, {what}", estimate=stats.difference(a, b))

        depth = between(shifted, fewer, f"{told} less {plain}")
        saved = between(shifted, more, f"{told} less vanilla with {layers + 1}")
        layer = between(more, fewer, f"vanilla with {layers + 1} layers less {layers}")
        own = partial(claim, measure=f"mean log2 k*, {told}", estimate=stats.mean(shifted))

        def no_more(declared: Claim) -> Claim:
            why = f"From {predicted((VANILLA, layers))} hops, those by hand, rows of {room} leave room for hardly more."
            return changed(claim(sentence=declared.sentence, why=why), declared, scale, CHANGED)

        return [
            depth(sentence="At equal depth the shift follows more hops", threshold=0.0),
            depth(sentence="It is worth no less than a layer by hand, one doubling", threshold=1 - MARGIN),
            no_more(depth(sentence="It is worth no more than that", threshold=1 + MARGIN, right_side="below")),
            saved(sentence="The shift follows no fewer hops than one vanilla layer more", threshold=-MARGIN),
            saved(sentence="It follows no more than that", threshold=MARGIN, right_side="below"),
            layer(sentence="One more vanilla layer is no less than a doubling", threshold=1 - MARGIN),
            no_more(layer(sentence="It is no more than that", threshold=1 + MARGIN, right_side="below")),
            own(
                sentence=f"Layers with the shift go beyond the {by_pointers((KV, layers))} hops of pointers alone",
                threshold=float(np.log2(by_pointers((KV, layers)) + 1)),
            ),
            own(sentence=f"They follow the {by_hand} hops that they can by hand", threshold=float(np.log2(by_hand))),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State k* of every model in one sentence."""
        return horizons_told(data, _cells(scale))

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the horizons against layers, with what can be followed by hand as lines."""
        return horizons_drawn(data, "Is the shift worth a layer?", scale, [VANILLA, KV])


def _cells(scale: Scale) -> tuple[Cell, Cell, Cell]:
    """Return the shift with L layers, and vanilla with L and L + 1."""
    layers = DEPTH[scale]
    return (KV, layers), (VANILLA, layers), (VANILLA, layers + 1)
