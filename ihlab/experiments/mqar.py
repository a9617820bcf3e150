"""MQAR, induction's control: keys and values are disjoint, and a value stands right after its key."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.curves import final, learning_curve_table, plan
from ihlab.experiments.experiment import Planned, Scale
from ihlab.model.config import ModelConfig
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLACK, BLUE, ORANGE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import MQARTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

KV1, V1, V2 = "KV shifting, 1 layer", "vanilla, 1 layer", "vanilla, 2 layers"
CURVES: dict[str, dict[str, object]] = {KV1: {"attention": "kv_shift"}, V1: {}, V2: {"n_layers": 2}}
LINES = {KV1: Line(BLUE), V1: Line(BLACK, ":"), V2: Line(ORANGE, "--")}
SEEDS = {"smoke": 2, "laptop": 3, "gpu": 5, "paper": 5}

SETTINGS = {"64 positions, 4 pairs": (64, 4), "128 positions, 8 pairs": (128, 8)}
"""Zoology's two smallest (Arora et al. 2023, arXiv 2312.04927, Figure 2)."""

SMOKE_SETTINGS = {"16 positions, 2 pairs": (16, 2)}
HELP = 0.1
"""A help is a final accuracy higher by this much."""


def settings(scale: Scale) -> dict[str, tuple[int, int]]:
    """Length and pairs of each panel."""
    return SMOKE_SETTINGS if scale == "smoke" else SETTINGS


def base(scale: Scale, length: int, pairs: int) -> RunConfig:
    """One run: Zoology's d_model 64 and one head. The laptop's vocabulary is 512 in place of 8192."""
    vocab_size = {"smoke": 32, "laptop": 512, "gpu": 8192, "paper": 8192}[scale]
    task = MQARTask(vocab_size=vocab_size, length=length, pairs=pairs)
    model = ModelConfig(n_layers=1, d_model=64, n_heads=1, d_vocab=vocab_size, n_ctx=length)
    run = RunConfig(task=task, model=model, steps=600, batch_size=64, lr=3e-3, eval_rows=512, checkpoints=2)
    if scale == "smoke":
        return run.but(model=model.but(d_model=16), steps=20, batch_size=8, warmup=5, eval_rows=32)
    return run if scale == "laptop" else run.but(steps=8000, batch_size=256, lr=1e-3, compile=True, precision="bf16")


class MQAR:
    """Accuracy on the queries against training steps."""

    name = "mqar"

    def runs(self, scale: Scale) -> list[Planned]:
        """KV shifting with one layer, vanilla with one and two, at each setting."""
        return [
            Planned(f"{planned.curve}, {setting}", planned.config)
            for setting, (length, pairs) in settings(scale).items()
            for planned in plan(f"mqar-{length}", base(scale, length, pairs), CURVES, SEEDS[scale])
        ]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Every evaluation of every run."""
        return learning_curve_table(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Is the shift a help where keys and values are disjoint and adjacent? The paper only says that they differ."""
        claim = partial(Claim, source="our question; section 3.2 compares with MQAR", seeds=int(data["seed"].nunique()))
        return [
            claim(
                sentence=f"With disjoint, adjacent keys and values one layer of KV shifting beats {other} ({setting}).",
                measure=f"final accuracy, {KV1} less {other}",
                estimate=stats.difference(
                    final(data, f"{KV1}, {setting}", "accuracy"), final(data, f"{other}, {setting}", "accuracy")
                ),
                threshold=HELP,
                right_side="above",
            )
            for setting in settings(scale)
            for other in (V1, V2)
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """A panel for each setting."""
        names = settings(scale)
        figure = new_figure(4.4 * len(names) + 0.6, 3.6)
        for axes, setting in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
            learning_curves(axes, data, "step", "accuracy", {f"{who}, {setting}": look for who, look in LINES.items()})
            axes.set(title=setting, xlabel="training step", ylim=(-0.02, 1.02))
            axes.label_outer()
        figure.axes[0].set_ylabel("accuracy on queries")
        figure.legend(figure.axes[0].get_lines(), LINES, loc="outside lower center", ncols=len(LINES))
        seeds = data["seed"].nunique()
        figure.suptitle(f"Multi-query associative recall ({scale} scale; median of {seeds} seeds, band: all seeds)")
        return figure
