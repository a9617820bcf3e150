"""Figure 8 as a law: how many hops models of 1, 2, 3, ... layers follow, with each half of the shift and without."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale
from ihlab.plots.style import printed
from ihlab.studies.figure8 import base, origin
from ihlab.studies.hops import (
    KINDS,
    Cell,
    by_pointers,
    cell_name,
    followed,
    hop_tables,
    horizons_drawn,
    of_cell,
    plan_hops,
    predicted,
    share_claim,
)
from ihlab.training.config import RunConfig
from tasks import MultiHopTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

VANILLA, KV, K, V = KINDS.values()
DEPTHS: dict[Scale, dict[str, tuple[int, ...]]] = {
    "smoke": {VANILLA: (2,), KV: (1, 2), K: (2,), V: (2,)},
    "laptop": {VANILLA: (2, 3), KV: (1, 2, 3), K: (2,), V: (2,)},
    "gpu": {VANILLA: (2, 3, 4), KV: (1, 2, 3, 4), K: (1, 2, 3, 4), V: (2, 3, 4)},
    "paper": {VANILLA: (2, 3, 4), KV: (1, 2, 3, 4), K: (1, 2, 3, 4), V: (2, 3, 4)},
}
"""Layers of each kind of attention; one layer without the key shift follows no hop. A laptop has the
halves of the shift with two layers only."""
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}
"""Fewer than six can decide nothing about the share of one cell's models."""
STEPS = {
    "smoke": dict.fromkeys(range(1, 5), 20),
    "laptop": {1: 1500, 2: 6000, 3: 3000},
    "gpu": {1: 3000, 2: 12_000, 3: 24_000, 4: 24_000},
    "paper": {1: 10_000, 2: 20_000, 3: 40_000, 4: 80_000},
}
"""By the number of layers. After a quarter of a laptop's 6000 steps two layers with the shift follow a hop less; three
layers have fewer steps because each costs more, so where theirs stand still is not known (docs/LOG.md)."""
CHANGED = "2026-11-23: with two vanilla layers both constructions follow one hop, so that they told nothing apart"
ALPHABET = 10
"""Letters of the alphabet. With Figure 8's four, the last few tokens, seen at once, hold several hops."""
HOPS = {"smoke": 3, "laptop": 5, "gpu": 9, "paper": 9}
"""Hops of a row: one more than the deepest models follow with pointers alone."""


def law_base(scale: Scale, hops: int) -> RunConfig:
    """Return the base config of a scale, for rows of so many hops: Figure 8's on a laptop, with ten letters, no MLPs.

    The law is one of attention, and its constructions need MLPs only to switch hops on and off. Rate and steps were
    chosen on three vanilla layers, of seeds that are not used (docs/LOG.md).
    """
    run = base("smoke" if scale == "smoke" else "laptop")
    letters = ALPHABET * hops - 2
    task = MultiHopTask(vocab_size=hops + 3 + ALPHABET, length=letters + 1, max_hops=hops, alphabet=ALPHABET)
    run = run.but(task=task, model=run.model.but(d_vocab=task.vocab_size, n_ctx=task.length, mlp="none"))
    return run if scale == "smoke" else run.but(batch_size=64, lr=8e-3)


class Figure8Law:
    """The hops that vanilla and KV shifting, and each half of the shift, follow against the number of layers."""

    name = "figure8_law"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every kind of attention at its depths."""
        cells = [(kind, depth) for kind, depths in DEPTHS[scale].items() for depth in depths]
        runs = plan_hops(self.name, law_base(scale, HOPS[scale]), cells, SEEDS[scale])
        steps = STEPS[scale]
        return [Planned(run.curve, run.config.but(steps=steps[run.config.model.n_layers])) for run in runs]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on rows that are the same for all."""
        return hop_tables(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether trained models follow exactly as many hops as the constructions do.

        A cell counts where a construction's number is less than the hops of a row, so that one more would be seen, and
        where the constructions differ: one layer of the shift, and two without it, follow one hop in both. V only's row
        tells it from K only and the whole shift all the same. (As it was declared, the first claim counted two vanilla
        layers too.)
        """
        table = followed(data)
        claim = partial(
            Claim, source="beside Appendix E.1", seeds=int(data["seed"].nunique()), declared="2026-11-23",
            of_paper=False,
        )  # fmt: skip
        cells = {kind: [(kind, depth) for depth in depths] for kind, depths in DEPTHS[scale].items()}
        differ = {kind: [cell for cell in mine if by_pointers(cell) < predicted(cell)] for kind, mine in cells.items()}
        by_hand = "L vanilla layers follow 2^(L-1) - 1 hops, as by hand"
        asked: tuple[tuple[str, list[Cell], Callable[[Cell], int]], ...] = (
            (by_hand, differ[VANILLA], predicted),
            ("L layers of KV shifting follow 2^L - 1 hops, as by hand", differ[KV], predicted),
            ("So do those whose keys alone are shifted", differ[K], predicted),
            ("Those whose values alone are shifted follow as many as vanilla", cells[V], predicted),
            ("L layers of KV shifting follow 2^(L-1) hops, as with pointers alone", differ[KV], by_pointers),
            (
                "L vanilla layers follow 2^(L-2) hops, as with a layer for the token before",
                differ[VANILLA],
                by_pointers,
            ),
        )

        def judge(sentence: str, mine: list[Cell], hops: Callable[[Cell], int]) -> list[Claim]:
            wanted = {cell: hops(cell) for cell in mine if hops(cell) < HOPS[scale]}
            depths = ", ".join(str(depth) for _, depth in wanted)
            return [share_claim(table, claim, f"{sentence} (L = {depths})", wanted)] if wanted else []

        first = judge(by_hand, cells[VANILLA], predicted)
        return [
            changed(found, first[0], scale, CHANGED) if sentence == by_hand else found
            for sentence, mine, hops in asked
            for found in judge(sentence, mine, hops)
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the hops that every cell's models follow in one sentence."""
        table, parts = followed(data), []
        for cell in ((kind, depth) for kind, depths in DEPTHS[scale].items() for depth in depths):
            told = ", ".join(map(str, sorted(of_cell(table, cell)["hops"])))
            parts.append(f"{cell_name(cell)} {told} (by hand {predicted(cell)})")
        return f"Hops that each model follows with errors of at most 0.1, a number a seed: {'; '.join(parts)}."

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw horizons against layers, the constructions as lines and the published vanilla models as diamonds."""
        published = origin().assign(attention=VANILLA, seed=0)
        there = published[published["n_layers"].isin(DEPTHS[scale][VANILLA])]
        kinds = [kind for kind, depths in DEPTHS[scale].items() if depths]
        return horizons_drawn(data, "Hops that L layers follow", scale, kinds, there)
