"""Figure 1b: induction under the pressure of a small hidden size."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.curves import final, learning_curve_table, plan
from ihlab.experiments.experiment import Planned, Scale
from ihlab.experiments.figure1 import base
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLUE, ORANGE, new_figure, printed

if TYPE_CHECKING:
    from ihlab.training.run import Run

WIDTHS = (8, 16, 32)
SEEDS = {"smoke": 2, "laptop": 5, "gpu": 5, "paper": 3}

WIDE_MARGIN = 0.3
"""How much accuracy "a wide margin" is."""


def kv(width: int) -> str:
    """The curve of the one-layer KV shifting model at a hidden size."""
    return f"KV shifting, 1 layer, hidden size {width}"


def vanilla(width: int) -> str:
    """The curve of the two-layer vanilla model at a hidden size."""
    return f"vanilla, 2 layers, hidden size {width}"


NARROW_LR = 1.6e-2
"""Best of a grid for two-layer vanilla at laptop scale (docs/LOG.md); at paper scale the paper's own rate stays."""


class Figure1b:
    """KV shifting with one layer against vanilla with two, twice the parameters, at hidden sizes 8, 16 and 32."""

    name = "figure1b"

    def runs(self, scale: Scale) -> list[Planned]:
        """Two curves a width."""
        curves: dict[str, dict[str, object]] = {}
        for width in WIDTHS:
            shape = {"d_model": width, "n_heads": 1 if width == 8 else 2, "init_std": None}
            curves[kv(width)] = {**shape, "attention": "kv_shift", "n_layers": 1}
            curves[vanilla(width)] = {**shape, "n_layers": 2}
        narrow = base(scale)
        if scale != "paper":
            narrow = narrow.but(lr=NARROW_LR, weight_decay=0.0, steps=narrow.steps * 3 // 2)  # they learn later
        return plan(self.name, narrow, curves, SEEDS[scale])

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Every evaluation of every run."""
        return learning_curve_table(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Section 3.2, "Various width"."""
        n_params = data.groupby("curve")["n_params"].first()
        claim = partial(Claim, source="section 3.2, Figure 1b", seeds=int(data["seed"].nunique()))
        return [
            claim(
                sentence="At hidden size 8 standard attention learns very poorly; KV shifting does not.",
                measure="final accuracy, KV shifting 1 layer - vanilla 2 layers, at hidden size 8",
                estimate=stats.difference(final(data, kv(8)), final(data, vanilla(8))),
                threshold=WIDE_MARGIN,
                right_side="above",
            ),
            claim(
                sentence="The vanilla model has two times the parameters of the KV shifting one.",
                measure="parameters without embeddings, vanilla 2 layers / KV shifting 1 layer, at hidden size 8",
                estimate=stats.exact(float(n_params[vanilla(8)] / n_params[kv(8)])),
                threshold=1.9,
                right_side="above",
            ),
            claim(
                sentence="The smaller the hidden size, the harder induction is for standard attention to learn.",
                measure="final accuracy of vanilla 2 layers, hidden size 32 - hidden size 8",
                estimate=stats.difference(final(data, vanilla(32)), final(data, vanilla(8))),
                threshold=0.0,
                right_side="above",
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """One panel a hidden size."""
        figure = new_figure(9.5, 4.0)
        panels = figure.subplots(1, len(WIDTHS), sharey=True)
        n_params = data.groupby("curve")["n_params"].first()
        for width, axes in zip(WIDTHS, panels, strict=True):
            looks = {kv(width): Line(BLUE), vanilla(width): Line(ORANGE, "--")}
            learning_curves(axes, data, "step", "accuracy_first", looks)
            sizes = f"{n_params[kv(width)]:,} and {n_params[vanilla(width)]:,} parameters"
            axes.set_title(f"hidden size {width}\n{sizes}", fontsize=10)
            axes.set(xlabel="training step", ylim=(-0.02, 1.02))
        handles = panels[0].get_lines()
        figure.legend(handles, ["KV shifting, 1 layer", "vanilla, 2 layers"], loc="outside lower center", ncols=2)
        panels[0].set_ylabel("accuracy at the first repeat")
        seeds = data["seed"].nunique()
        figure.suptitle(f"Induction at various widths ({scale} scale; median of {seeds} seeds, band: all seeds)")
        return figure
