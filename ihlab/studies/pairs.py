"""Does a shorter convolution of the queries make induction heads of n-grams (arXiv 2411.19574, section 5)?

"One possible alternative is to set the kernel size of the query's short convolution to key's - 1 to simulate the
learning process of n-gram induction heads." For two tokens, queries mix 2 tokens and keys 3. By hand one layer then
does it exactly (`tests/model/test_pairs_by_hand.py`): the query holds the last letter and half of the one before, the
key at each follower the letter before it and half of the one before that. The right order scores 5/4, all else 1 or
less.

`tasks.PairTask` asks for the follower of two letters. The last letter alone gives an accuracy of 1/3, both letters
without their order at most .57 (`tests/tasks/test_pairs.py`). Without a shift of the queries, one layer attends by the
last letter alone. That excludes no solution: a head for each letter of the alphabet, which adds this letter to the last
one, and an MLP that chooses among the heads, could do it. So this is a question about learning.

Measures and thresholds were fixed before the runs. The setting was chosen on seed 100.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.comparison import RUN, Cell, Comparison, cell_rate, cell_rows, steps
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import KV
from ihlab.claims.rates import count_in_words
from ihlab.model.config import ModelConfig
from ihlab.plots.style import BLUE, PAGE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import PairTask

KV3, QKV2, Q2K3 = "KV, window 3", "KV and queries, window 2", "KV, window 3, and queries, window 2"
KV3_CHANNEL, Q2K3_CHANNEL = f"{KV3} (per channel)", f"{Q2K3} (per channel)"
_WINDOW3 = {"shift_window": 3, "shift_start": "uniform"}
ARMS: dict[str, dict[str, Any]] = {
    KV: {"attention": "kv_shift"},
    KV3: {"attention": "kv_shift", **_WINDOW3},
    KV3_CHANNEL: {"attention": "kv_shift", **_WINDOW3, "shift_share": "channel"},
    QKV2: {"attention": "qkv_shift"},
    Q2K3: {"attention": "qkv_shift", **_WINDOW3, "query_window": 2},
    Q2K3_CHANNEL: {"attention": "qkv_shift", **_WINDOW3, "query_window": 2, "shift_share": "channel"},
}
"""Fields of the model that make each arm."""
SETTING, STEPS = "1 layer", 400
LEARNED, NOT_LEARNED = 0.9, 0.7
LEARNERS = (Q2K3, Q2K3_CHANNEL)
"""Arms that are expected to be above `LEARNED`. All others are expected to be below `NOT_LEARNED`."""


class Pairs(Comparison):
    """The highest accuracy of every arm, with one layer."""

    def __init__(self) -> None:
        super().__init__(
            name="pairs", title="Induction by two tokens", declared="2026-11-27",
            variants=tuple(ARMS), settings=(SETTING,), questions=(),
        )  # fmt: skip

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every arm; at smoke scale one without and one with a shift of the queries."""
        return [(arm, SETTING) for arm in ((KV3, Q2K3) if scale == "smoke" else ARMS)]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return the config of an arm."""
        (arm, _), task = cell, PairTask()
        model = ModelConfig(
            n_layers=1, d_model=32, n_heads=2, d_vocab=task.vocab_size, n_ctx=task.length,
            **ARMS[arm],
        )  # fmt: skip
        config = RunConfig(
            task=task, model=model, steps=STEPS, batch_size=16, warmup=20, eval_rows=256, eval_growth=0.1,
            checkpoints=2, stop_at_accuracy=0.98, stop_at_metric="accuracy",
        )  # fmt: skip
        return config.replace(steps=12, eval_rows=32) if scale == "smoke" else config

    def grid(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the learning rates that are tried for every arm."""
        return (1e-2,) if scale == "smoke" else (4e-3, 1e-2, 2.5e-2)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the highest accuracy of every arm."""
        return [self._claim(data, cell) for cell in self.cells(scale)]

    def _claim(self, data: pd.DataFrame, cell: Cell) -> Claim:
        (arm, _), rows = cell, cell_rows(data, cell)
        of_paper = arm == Q2K3
        claim = partial(
            Claim,
            source="section 5" if of_paper else "of the paper's kernel sizes (section 5)",
            of_paper=of_paper,
            measure=f"highest accuracy within {rows['horizon'].max():.0f} steps, mean over seeds "
            f"({count_in_words(steps(data, cell))} seeds get to 90%; learning rate {cell_rate(data, cell)})",
            estimate=stats.mean(rows["best"].tolist(), stats.SHARE),
            seeds=len(rows),
            declared=self.declared,
        )
        if arm in LEARNERS:
            return claim(sentence=f"{arm}: one layer learns induction by two tokens.", threshold=LEARNED)
        sentence = f"{arm}: one layer does not learn induction by two tokens."
        return claim(sentence=sentence, threshold=NOT_LEARNED, right_side="below")

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the highest accuracy of every seed, a row for each arm."""
        figure = new_figure(PAGE, 3.6)
        axes = figure.subplots()
        for row, arm in enumerate(ARMS):
            best = cell_rows(data, (arm, SETTING))["best"]
            axes.plot(best, row + np.linspace(-0.25, 0.25, len(best)), "o", color=BLUE, mfc="white", ms=5)
        axes.axvline(1 / (PairTask().letters - 1), color="#777777", linewidth=1, linestyle="--")
        axes.set(xlim=(0, 1.03), ylim=(len(ARMS) - 0.5, -0.5), xlabel="highest accuracy")
        axes.set_yticks(range(len(ARMS)), list(ARMS))
        figure.suptitle(
            "Which shift lets one layer learn induction by two tokens?\n"
            f"Circle: one of {data.loc[data['kind'] == RUN, 'seed'].nunique()} seeds. "
            "Dashed: match of the last letter alone.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every arm's mean highest accuracy, and the steps to 90% of those that get there."""
        told = []
        for cell in self.cells(scale):
            middle = float(np.median(steps(data, cell)))
            when = f", 90% after {middle:.0f} steps" if np.isfinite(middle) else ""
            told.append(f"{cell_rows(data, cell)['best'].mean():.2f} ({cell[0]}{when})")
        return f"Highest accuracy of one layer, mean of seeds (1/3: match of the last letter alone): {'; '.join(told)}."
