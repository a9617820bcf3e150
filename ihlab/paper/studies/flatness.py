"""Is the loss of a language model flatter with KV shifting?

Section 4.3: at a high rate vanilla diverges and KV shifting does not, and "this suggests that the optimization space
for KV shifting attention may be flatter". How sharp a loss is at a model's weights is measured by the largest
eigenvalue of its Hessian over all weights, on the same held-out text for all models.

A comparison is fair where the losses are equal. They are before training, where models of one seed differ in alpha and
beta only. Later, each model is measured at several checkpoints, and its sharpness is interpolated (its logarithm,
linear in the loss) to the lowest loss that both models of a seed reach. All models have one constant rate, because
sharpness follows the rate. Measures and thresholds were fixed before the runs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.linalg import eigvalsh_tridiagonal

from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure
from ihlab.recipes.labels import KV, VANILLA
from ihlab.recipes.real_text import held_out, text_run
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, named, pick
from ihlab.study.experiment import Scale
from ihlab.study.study import Run, Study, cells
from ihlab.training.config import RunConfig
from tasks import Batch, TextTask

if TYPE_CHECKING:
    import torch

    from ihlab.model.transformer import Transformer

ATTENTION = {VANILLA: "vanilla", KV: "kv_shift"}
SEQUENCES = 4
"""Held-out sequences on which the sharpness is measured."""
ITERATIONS = 20
"""Products of the Hessian with a vector, which find the eigenvalue to three digits (`test_flatness.py`)."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the run on text of two layers, at a constant rate."""
    run = text_run(scale).replace(schedule="constant", compile=False)
    model, task = run.model.replace(attention=ATTENTION[cell["variant"]]), run.task
    if scale == "smoke":
        return run.replace(model=model)
    assert isinstance(task, TextTask)
    return run.replace(
        task=replace(task, vocab_size=512), model=model.replace(d_model=64, n_heads=2, d_vocab=512),
        steps=240, lr=8e-3, eval_every=40, eval_rows=32, checkpoints=7,
    )  # fmt: skip


def measure(run: Run) -> pd.DataFrame:
    """Return the loss (nats) and the sharpness of every checkpoint."""
    assert isinstance(run.config.task, TextTask)
    batch, _ = held_out(run.config.task, SEQUENCES)
    rows = [(step, *loss_and_sharpness(run.model(step), batch)) for step in run.checkpoints]
    return pd.DataFrame(rows, columns=["step", "loss", "sharpness"])


def loss_and_sharpness(model: "Transformer", batch: Batch) -> tuple[float, float]:
    """Return a model's loss, and the largest eigenvalue of its Hessian over all weights."""
    import torch
    from torch.autograd import grad
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import cross_entropy

    weights = list(model.parameters())
    inputs, targets = (torch.from_numpy(part.copy()) for part in (batch.inputs, batch.targets))
    with sdpa_kernel(SDPBackend.MATH):  # no other kernel can be differentiated twice
        loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        slopes = torch.cat([slope.flatten() for slope in grad(loss, weights, create_graph=True)])

    def bent(along: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.flatten() for part in grad(slopes, weights, along, retain_graph=True)])

    return loss.item(), largest_eigenvalue(bent, len(slopes))


def largest_eigenvalue(product: "Callable[[torch.Tensor], torch.Tensor]", size: int) -> float:
    """Return the largest eigenvalue of a symmetric matrix, from its product with vectors, by Lanczos' iteration.

    Power iteration would find the largest by size, which before training may be negative.
    """
    import torch

    along = torch.randn(size, generator=torch.Generator().manual_seed(0))
    before, length, diagonal, beside = torch.zeros(size), 0.0, [], [float(along.norm())]
    for _ in range(min(ITERATIONS, size)):
        along = along / beside[-1]
        left = product(along) - length * before
        diagonal.append(float(left @ along))
        left -= diagonal[-1] * along
        before, along, length = along, left, float(left.norm())
        beside.append(length)
    return float(eigvalsh_tridiagonal(diagonal, beside[1:-1])[-1])


def ratios(data: pd.DataFrame, equal_loss: bool) -> list[float]:
    """Return KV shifting's sharpness / vanilla's of each seed, before training or at an equal loss."""
    found = []
    for seed in sorted(set(data["seed"])):
        plain, shifted = (pick(data, {"variant": name, "seed": seed}).sort_values("loss") for name in ATTENTION)
        target = max(rows["loss"].min() if equal_loss else rows["loss"].max() for rows in (plain, shifted))
        logs = [np.interp(target, rows["loss"], np.log(rows["sharpness"])) for rows in (plain, shifted)]
        found.append(float(np.exp(logs[1] - logs[0])))
    return found


def flatter(id: str, where: str, equal_loss: bool) -> Ask:
    """Ask whether the loss is less sharp with KV shifting."""
    return Ask(
        f"flatter.{id}",
        f"The loss is flatter for KV shifting than for vanilla attention ({where}).",
        named(
            "largest eigenvalue of the Hessian, KV shifting / vanilla of the same seed, mean over seeds",
            lambda data: stats.mean(ratios(data, equal_loss)),
        ),
        below=1.0,
        setting={"where": where},
        statement=23,
        source="section 4.3, about a 1.5B language model",
    )


def view(data: pd.DataFrame) -> Figure:
    """Draw every run's sharpness against its loss."""
    figure = new_figure(PAGE, 4.2)
    axes = figure.subplots()
    for variant, color, line in zip(ATTENTION, (ORANGE, BLUE), ("s--", "o-"), strict=True):
        for seed, run in data[data["variant"] == variant].groupby("seed"):
            label = variant if seed == data["seed"].min() else None
            axes.plot(run["loss"], run["sharpness"], line, color=color, mfc="white", ms=4, lw=1, label=label)
    axes.set(xlabel="held-out loss (nats a token)", ylabel="sharpness")
    axes.invert_xaxis()
    axes.legend()
    return figure


FLATNESS = Study(
    name="flatness",
    title="How sharp is the loss on text?",
    key="Line: a seed. Sharpness: the largest eigenvalue of the Hessian. Training goes from left to right.",
    declared="2026-11-27",
    cells=cells(variant=tuple(ATTENTION)),
    config=config,
    seeds=range(1, 9),  # seed 0 was looked at
    measure=measure,
    asks=(flatter("start", "before training", False), flatter("equal_loss", "at an equal loss", True)),
    shown=("loss", "sharpness"),
    view=view,
)
