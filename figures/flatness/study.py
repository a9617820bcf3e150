"""Is the loss of a language model flatter with KV shifting?

Section 4.3: at a high rate vanilla diverges and KV shifting does not, and "this suggests that the
optimization space for KV shifting attention may be flatter". How sharp a loss is at a model's
weights is measured by the largest eigenvalue of its Hessian over all weights, on the same held-out
text for all models.

A comparison is fair at equal losses. They are equal before training, where models of a seed differ
in alpha and beta only. Later, each model is measured at several checkpoints, and its sharpness is
interpolated (its logarithm, linear in the loss) to the lowest loss that both models of a seed
reach. All models have one constant rate, because sharpness follows the rate. Measures and
thresholds were fixed before the runs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.linalg import eigvalsh_tridiagonal

from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure
from ihlab.recipes.labels import KV, VANILLA
from ihlab.recipes.real_text import held_out, text_run
from ihlab.study import stats
from ihlab.study.ask import Ask, described, pick
from ihlab.study.study import Grid, Run, Study
from tasks import Batch, TextTask

if TYPE_CHECKING:
    import torch

    from ihlab.model.transformer import Transformer

MODELS = (VANILLA, KV)
SEQUENCES = 4
"""Held-out sequences on which the sharpness is measured."""
ITERATIONS = 20
"""Number of Hessian-vector products, which find the eigenvalue to three digits
(`test_flatness.py`).
"""


TASK = TextTask(vocab_size=512, length=256)
GRID = Grid(
    text_run().replace(
        task=TASK, model=text_run().model.replace(d_model=64, n_heads=2, d_vocab=512), schedule="constant",
        compile=False, steps=240, lr=8e-3, eval_every=40, eval_rows=32, checkpoints=7,
    ),
    {"variant": {VANILLA: {}, KV: {"attention": "kv_shift"}}},
)  # fmt: skip


def measure(run: Run) -> dict[str, float]:
    """Return the loss (nats) and the sharpness of every checkpoint, loss_0, sharpness_0, loss_1,
    ..., and at the end.

    Two runs are compared at a loss that both reach, so a question needs all checkpoints.
    """
    assert isinstance(run.config.task, TextTask)
    batch, _ = held_out(run.config.task, SEQUENCES)
    row: dict[str, float] = {}
    for i, step in enumerate(run.checkpoints):
        loss, sharpness = loss_and_sharpness(run.model(step), batch)
        row |= {f"loss_{i}": loss, f"sharpness_{i}": sharpness}
    return row | {"loss": loss, "sharpness": sharpness}


def path(run: pd.Series) -> np.ndarray:
    """Return the losses and the sharpness of a run's checkpoints, [2, checkpoint]."""
    return np.stack(
        [run.filter(regex=f"^{name}_").to_numpy(dtype=float) for name in ("loss", "sharpness")]
    )


def loss_and_sharpness(model: "Transformer", batch: Batch) -> tuple[float, float]:
    """Return a model's loss, and the largest eigenvalue of its Hessian over all weights."""
    import torch
    from torch.autograd import grad
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import cross_entropy

    weights = list(model.parameters())
    inputs, targets = (torch.from_numpy(tokens.copy()) for tokens in (batch.inputs, batch.targets))
    with sdpa_kernel(SDPBackend.MATH):  # no other kernel can be differentiated twice
        loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        slopes = torch.cat([slope.flatten() for slope in grad(loss, weights, create_graph=True)])

    def bent(along: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [slope.flatten() for slope in grad(slopes, weights, along, retain_graph=True)]
        )

    return loss.item(), largest_eigenvalue(bent, len(slopes))


def largest_eigenvalue(product: "Callable[[torch.Tensor], torch.Tensor]", size: int) -> float:
    """Return the largest eigenvalue of a symmetric matrix, from its product with vectors, by
    Lanczos' iteration.

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
    by_seed = []
    for seed in sorted(set(data["seed"])):
        both = []
        for name in MODELS:
            losses, sharpness = path(pick(data, {"variant": name, "seed": seed}).iloc[0])
            order = losses.argsort()  # from the lowest loss, where training ends
            both.append((losses[order], np.log(sharpness[order])))
        place = 0 if equal_loss else -1
        target = max(losses[place] for losses, _ in both)
        plain, shifted = (np.interp(target, *each) for each in both)
        by_seed.append(float(np.exp(shifted - plain)))
    return by_seed


def flatter(id: str, where: str, equal_loss: bool) -> Ask:
    """Ask whether the loss is less sharp with KV shifting."""
    return Ask(
        f"flatter.{id}",
        f"The loss is flatter for KV shifting than for vanilla attention ({where}).",
        described(
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
    for variant, color, line in zip(MODELS, (ORANGE, BLUE), ("s--", "o-"), strict=True):
        for _, run in data[data["variant"] == variant].iterrows():
            label = variant if run["seed"] == data["seed"].min() else None
            axes.plot(*path(run), line, color=color, mfc="white", ms=4, lw=1, label=label)
    axes.set(xlabel="held-out loss (nats a token)", ylabel="sharpness")
    axes.invert_xaxis()
    axes.legend()
    return figure


FLATNESS = Study(
    name="flatness",
    heading="Flatness: is the loss on text flatter with the shift?",
    title="How sharp is the loss on text?",
    caption="Line: a seed. Sharpness: the largest eigenvalue of the Hessian. Training goes from left to right.",
    declared="2026-11-27",
    cells=GRID.cells,
    config=GRID,
    seeds=range(1, 9),  # seed 0 was looked at
    measure=measure,
    asks=(
        flatter("start", "before training", False),
        flatter("equal_loss", "at an equal loss", True),
    ),
    summary_columns=("loss", "sharpness"),
    view=view,
)
