"""Common parts of Figures 1a and 1b: the induction task and how a model is trained on it at each scale."""

from typing import TYPE_CHECKING

import numpy as np

from ihlab.claims.experiment import Scale
from ihlab.claims.learning_curves import EVAL_GROWTH
from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig, constant_steps
from tasks import IGNORE, InductionTask

if TYPE_CHECKING:  # the tables' claims and pictures need no torch
    from ihlab.training.run import Run


def base(scale: Scale) -> RunConfig:
    """Return the base config of a scale: vanilla, one layer. Every curve alters two or three of its fields."""
    if scale == "paper":
        # Section 3.2, Appendices K and N: vocabulary 8000, length 512, d_model 1024, 8 x 512 sequences a
        # step, lr 2e-4, 1000 steps of warm-up. Inferred: 8 heads (of width 128, as in Table 16), d_mlp 5504 (one
        # layer then has the paper's "approximately 20M" parameters), the initialisation (Llama's), 5000 steps.
        task = InductionTask(vocab_size=8000, length=512)
        model = _model(task, d_model=1024, n_heads=8, d_mlp=5504, init_std=0.02)
        return RunConfig(
            task=task, model=model, steps=5000, batch_size=4096, accumulate=16, lr=2e-4, warmup=1000,
            precision="bf16", compile=True, eval_every=25, eval_rows=1024,
        )  # fmt: skip
    if scale == "gpu":
        task = InductionTask(vocab_size=2048, length=256)
        model = _model(task, d_model=256, n_heads=8)
        return RunConfig(
            task=task, model=model, steps=4000, batch_size=256, lr=1e-3, warmup=200, schedule="trapezoid",
            precision="bf16", compile=True, eval_rows=1024,
        )  # fmt: skip
    if scale == "laptop":
        task = InductionTask(vocab_size=128, length=32)
        return RunConfig(
            task=task, model=_model(task, d_model=32, n_heads=4), steps=2000, batch_size=64, lr=4e-3,
            schedule="trapezoid", eval_rows=1024,
        )  # fmt: skip
    task = InductionTask(vocab_size=64, length=16)
    return RunConfig(
        task=task, model=_model(task, d_model=16, n_heads=2), steps=30, batch_size=16, warmup=5, schedule="trapezoid",
        eval_rows=64, checkpoints=3,
    )  # fmt: skip


def curves_base(scale: Scale) -> RunConfig:
    """Return the base config of Figures 1a, 1b and 2: on a laptop `base`, but compiled, and graded less.

    It has half the rows, and from step 100 on half the evaluations: a tenth of the steps done lies between two, and the
    claims ask whether ratios of steps are below .5 and .8. Experiments that are made on request keep `base`, on which
    their tables rest.
    """
    changes = {"compile": True, "eval_rows": 512, "eval_growth": EVAL_GROWTH} if scale == "laptop" else {}
    return base(scale).but(**changes)


def steps_at_constant_rate(scale: Scale, steps: float) -> int:
    """Return the steps before the learning rate falls, of as many as `steps`.

    What is learned after them is learned on the schedule's cue.
    """
    return constant_steps(base(scale).but(steps=int(steps)))


def _model(task: InductionTask, **shape: object) -> ModelConfig:
    return ModelConfig(n_layers=1, d_vocab=task.vocab_size, n_ctx=task.length, **shape)  # type: ignore[arg-type]


def guessing_accuracy(task: InductionTask) -> float:
    """Return the accuracy, at first repeats, of a uniform guess among the row's other tokens so far.

    A model gets it that knows that the answer is in the row and is not the current token, but not where it is. No rule
    without matching does better ("the previous token" and "the second token" do as well, to .01 at laptop scale; the
    current token is never right). From 4096 rows.
    """
    batch = task.batch(4096, np.random.default_rng(0))
    first = (batch.answers != IGNORE).argmax(axis=1)
    return float(np.mean([1 / (len(np.unique(row[: t + 1])) - 1) for row, t in zip(batch.inputs, first, strict=True)]))


def in_row(run: "Run") -> float:
    """Return the share of a model's answers at first repeats that are tokens of the row so far, right or wrong.

    On the run's own held-out rows.
    """
    import torch

    from ihlab.measure.batches import EVAL_SEED, draw

    batch = draw(run.config.task, EVAL_SEED, "eval", 0, run.config.eval_rows)
    rows, first = np.arange(len(batch.inputs)), (batch.answers != IGNORE).argmax(axis=1)
    with torch.no_grad():
        logits = run.model()(torch.from_numpy(batch.inputs.copy()))
    answers = logits[rows, first].argmax(dim=-1).numpy()
    seen = np.arange(batch.inputs.shape[1]) <= first[:, None]
    return round(float(((batch.inputs == answers[:, None]) & seen).any(axis=1).mean()), 6)
