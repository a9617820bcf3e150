"""Length generalisation: models trained on short sequences read sequences up to eight times as long.

Learned positions make induction easy for two vanilla layers (`ihlab.studies.robustness`). This study measures what they
cost. Every model can read the longest sequences, but training sequences use only the first eighth of its positions.

Each model is trained in two stages. The first tries every learning rate of a grid until 90% accuracy, on tuning seeds.
The second trains at the fastest rate to the last step, on the seeds of the claims. The final model answers new
induction sequences of each length, drawn from the same vocabulary. Longer sequences also have more distinct tokens to
tell apart. Measures, thresholds and seeds were fixed before the runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.comparison import RUN, TUNING_SEEDS, Cell, Comparison, cell_rows
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, KV1, V2, figure1_run
from ihlab.claims.rates import ACCURACY
from ihlab.plots.curves import Line
from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, new_figure, printed
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from ihlab.training.run import Run

FACTORS = (1, 2, 4, 8)
"""Tested lengths, as multiples of the training length."""
ROWS = 256
"""Number of test sequences of each length."""
TEST_SEED = 1_000_000

NONE, ROPE, ALIBI, LEARNED = "no positions", "RoPE", "ALiBi", "learned positions"
POSITIONS = {NONE: "none", ROPE: "rope", ALIBI: "alibi", LEARNED: "learned"}
STYLES = {NONE: Line(BLACK), ROPE: Line(BLUE, "--"), ALIBI: Line(GREEN, "-."), LEARNED: Line(ORANGE, ":")}

KEEPS, LOSES = -0.1, -0.5
"""A model keeps its accuracy if the change is above the first number, and loses it if it is below the second.

A model that does not learn the task has nothing to keep, so its claim is not tested."""
QUESTIONS: tuple[tuple[str, str, float], ...] = (
    (KV1, NONE, KEEPS),
    (KV1, ROPE, KEEPS),
    (KV1, ALIBI, KEEPS),
    (KV1, LEARNED, LOSES),
    (V2, ROPE, KEEPS),
    (V2, ALIBI, KEEPS),
    (V2, LEARNED, LOSES),
)
"""Model, positions and threshold. Two vanilla layers without positions do not learn the task."""


class Lengths(Comparison):
    """Accuracy at 1, 2, 4 and 8 times the trained length, by model and position scheme."""

    def __init__(self) -> None:
        super().__init__(
            name="lengths",
            title="Trained on short sequences, tested on long ones",
            variants=(KV1, V2),
            settings=tuple(POSITIONS),
            questions=(),
            declared="2026-11-26",
        )

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the models and positions that a question names."""
        return [(model, positions) for model, positions, _ in QUESTIONS]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return Figure 1a's config with a vocabulary and a context for the longest sequences. It stops at 90%."""
        run, (model, positions) = figure1_run(scale), cell
        longest = FACTORS[-1] * run.task.length
        task = replace(run.task, vocab_size=longest + run.task.length)  # type: ignore[type-var]
        changes = {"d_vocab": task.vocab_size, "n_ctx": longest, "positional": POSITIONS[positions], **DEPTHS[model]}
        return run.replace(task=task, model=run.model.replace(**changes), stop_at_accuracy=ACCURACY, checkpoints=2)

    def grid(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the learning rates that are tried."""
        return tuple(factor * figure1_run(scale).lr for factor in ((1, 4) if scale == "smoke" else (1, 2, 4, 8, 16)))

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan every model at its own rate, to the last step."""
        return [
            replace(plan, config=plan.config.replace(stop_at_accuracy=None)) for plan in super().follow(trained, scale)
        ]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Return `Comparison.gather`'s table. Runs of the claims have a column `accuracy_at_<length>` per length."""
        table = super().gather(trained, scale)
        found = [{} if run.config.seed in TUNING_SEEDS else accuracy_by_length(run) for _, run in trained]
        return table.join(pd.DataFrame(found, index=table.index))

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge by how much the accuracy changes from the trained length to the longest."""
        return [self._claim(data, *question) for question in QUESTIONS]

    def _claim(self, data: pd.DataFrame, model: str, positions: str, threshold: float) -> Claim:
        rows, columns = cell_rows(data, (model, positions)), _columns(data)
        short, long = (rows[column] for column in (columns[0], columns[-1]))
        does = "keeps" if threshold == KEEPS else "loses"
        claim = partial(
            Claim,
            source="beside Figure 1",
            of_paper=False,
            declared=self.declared,
            sentence=f"{model} with {positions} {does} its accuracy on sequences eight times as long as in training.",
            seeds=len(rows),
        )
        if short.mean() < ACCURACY:
            return claim(why=f"It does not learn the task: its accuracy at the trained length is {short.mean():.3f}.")
        return claim(
            measure=f"accuracy at length {_length(columns[-1])} less that at {_length(columns[0])} "
            f"({long.mean():.3f} less {short.mean():.3f}, learning rate {rows['lr'].iloc[0]:g})",
            estimate=stats.mean((long - short).tolist(), stats.DIFFERENCE),
            threshold=threshold,
            right_side="above" if threshold == KEEPS else "below",
        )

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the accuracy against the length, one panel per model."""
        figure, columns = new_figure(8.8, 4.0), _columns(data)
        panels = figure.subplots(1, 2, sharey=True)
        lengths = [_length(column) for column in columns]
        for axes, model in zip(panels, self.variants, strict=True):
            for positions, style in STYLES.items():
                rows = data[(data["variant"] == model) & (data["setting"] == positions) & (data["kind"] == RUN)]
                if rows.empty:
                    continue
                seeds = rows[columns].to_numpy()
                axes.plot(lengths, np.median(seeds, axis=0), style.dashes, color=style.color, label=positions)
                axes.fill_between(lengths, seeds.min(axis=0), seeds.max(axis=0), color=style.color, alpha=0.18, lw=0)
            axes.set(title=model, xlabel="length of the tested sequences", xscale="log", ylim=(-0.02, 1.02))
            axes.set_xticks(lengths, [str(length) for length in lengths])
            axes.minorticks_off()
        panels[0].set_ylabel("accuracy")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.suptitle(f"Trained on length {lengths[0]}, tested on longer sequences ({scale} scale; band: all seeds)")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the accuracy at the longest length for every model and position scheme."""
        column = _columns(data)[-1]
        told = [
            f"{cell_rows(data, (model, positions))[column].mean():.2f} ({model}, {positions})"
            for model, positions, _ in QUESTIONS
        ]
        return f"Accuracy on sequences eight times as long as in training, mean over seeds: {', '.join(told)}."


def accuracy_by_length(run: "Run") -> dict[str, float]:
    """Return the accuracy of a run's final model over all answers of `ROWS` new sequences of each length."""
    import torch

    from ihlab.measure.batches import draw
    from tasks import IGNORE

    model, task, found = run.model(), run.config.task, {}
    for length in (factor * task.length for factor in FACTORS):
        longer: Any = replace(task, length=length)  # type: ignore[type-var]
        batch = draw(longer, TEST_SEED, "eval", 0, ROWS)
        right, total = 0, int((batch.answers != IGNORE).sum())
        for start in range(0, ROWS, 32):
            part = batch.rows(start, start + 32)
            with torch.no_grad():
                answers = model(torch.from_numpy(part.inputs.copy())).argmax(dim=-1).numpy()
            right += int((answers == part.answers).sum())
        found[f"accuracy_at_{length}"] = round(right / total, 6)
    return found


def _columns(data: pd.DataFrame) -> list[str]:
    return [column for column in data.columns if column.startswith("accuracy_at_")]


def _length(column: str) -> int:
    return int(column.rpartition("_")[2])
