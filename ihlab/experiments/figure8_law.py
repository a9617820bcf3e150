"""Figure 8 as a law: how many hops each further layer buys, and how many the shift, half by half."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments.claims import Claim
from ihlab.experiments.experiment import Planned, Scale
from ihlab.experiments.figure8 import base, origin
from ihlab.experiments.hops import KINDS, gap_claim, hop_tables, horizons, layer_claim, log2_hops, plan_hops
from ihlab.plots.hops import horizon_law
from ihlab.plots.style import new_figure, printed
from ihlab.theory.depth import horizon
from ihlab.training.config import RunConfig
from tasks import MultiHopTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

DEPTHS = {"smoke": (1, 2), "laptop": (1, 2, 3), "gpu": (1, 2, 3, 4, 5), "paper": (1, 2, 3, 4, 5, 6)}
SEEDS = {"smoke": 2, "laptop": 16, "gpu": 16, "paper": 3}
"""With Figure 8's spread over seeds five would leave even an exact law undecided (docs/LOG.md)."""
LETTERS, LAPTOP_HOPS = 10, 6
"""Letters, and hops of a row. With four letters the last few tokens, seen at once, hold several hops."""
VANILLA, KV, K, V = KINDS.values()


def law_base(scale: Scale) -> RunConfig:
    """Return the base config of a scale: that of Figure 8, on a laptop with ten letters and longer training.

    In 2000 steps three layers of vanilla attention have not found their second hop yet.
    """
    run = base(scale)
    if scale != "laptop":
        return run
    task = MultiHopTask(vocab_size=LAPTOP_HOPS + 3 + LETTERS, length=65, max_hops=LAPTOP_HOPS, alphabet=LETTERS)
    return run.but(task=task, model=run.model.but(d_vocab=task.vocab_size, n_ctx=task.length), steps=4000)


class Figure8Law:
    """The hop horizon of vanilla and KV shifting, and of each half of the shift, against the number of layers."""

    name = "figure8_law"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the four kinds of attention at every depth."""
        return plan_hops(self.name, law_base(scale), tuple(KINDS), DEPTHS[scale], SEEDS[scale])

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on rows that are the same for all."""
        return hop_tables(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the law over all depths from two layers on: a doubling for a layer and for the key shift."""
        table, depths = horizons(data), DEPTHS[scale][1:]
        claim = partial(
            Claim, source="The hop horizon k*", seeds=int(data["seed"].nunique()), declared="2026-11-22", of_paper=False
        )
        cells = {label: [(label, depth) for depth in depths] for label in KINDS.values()}
        layered = (VANILLA, KV) if len(depths) > 1 else ()
        shallower = [(KV, depth - 1) for depth in depths]
        return [
            *(layer_claim(table, claim, label, depths[0], depths[-1]) for label in layered),
            gap_claim(table, claim, "The shift doubles the hops.", cells[KV], cells[VANILLA], 1),
            gap_claim(table, claim, "The shift saves a layer: the same hops.", shallower, cells[VANILLA], 0),
            gap_claim(table, claim, "The key shift alone does what both do.", cells[K], cells[KV], 0),
            gap_claim(table, claim, "The value shift alone gains nothing.", cells[V], cells[VANILLA], 0),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every cell's median horizon in one sentence."""
        table = horizons(data)
        parts = []
        for label in KINDS.values():
            medians = [2 ** float(log2_hops(table, (label, depth)).median()) for depth in DEPTHS[scale]]
            parts.append(f"{label} {', '.join(f'{hops:.1f}' for hops in medians)}")
        depths, seeds = ", ".join(map(str, DEPTHS[scale])), data["seed"].nunique()
        return (
            f"Hops k* at which the error exceeds 0.1, with {depths} layers (medians of {seeds} seeds): "
            f"{'; '.join(parts)}."
        )

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw horizons against layers, both constructions as lines and the published vanilla models as diamonds."""
        figure = new_figure(6.4, 4.4)
        axes = figure.subplots()
        published = origin().assign(attention=VANILLA, seed=0)
        there = published[published["n_layers"].isin(DEPTHS[scale])]
        laws = {
            "$2^{L-1}$, by hand with the key shift": partial(horizon, attention="k_shift"),
            "$2^{L-2}$, by hand without": partial(horizon, attention="vanilla"),
        }
        horizon_law(axes, horizons(data), list(KINDS.values()), horizons(there), laws)
        seeds = data["seed"].nunique()
        axes.set_title(f"Hops that L layers follow ({scale} scale; {seeds} seeds, bar: median)")
        return figure
