"""The run on real text at each scale and the text on which models are measured, which several studies share."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ihlab.claims.experiment import Scale
from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import Batch, TextTask
from tasks.text.corpus import SAMPLE

if TYPE_CHECKING:
    from ihlab.measure.text import RepeatedText


def text_run(scale: Scale) -> RunConfig:
    """Return the run of two vanilla layers on byte pairs of the standard library's sources."""
    if scale == "smoke":
        task = TextTask(corpus=SAMPLE, vocab_size=300, length=32)
        model = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=task.vocab_size, n_ctx=task.length)
        return RunConfig(task=task, model=model, steps=16, batch_size=4, warmup=4, eval_rows=8, checkpoints=3)
    task = TextTask(vocab_size=1024, length=256)
    model = ModelConfig(n_layers=2, d_model=96, n_heads=3, d_vocab=task.vocab_size, n_ctx=task.length)
    return RunConfig(
        task=task, model=model, steps=600, batch_size=8, schedule="linear", eval_every=30, eval_rows=64,
        eval_growth=0.0, checkpoints=21, compile=True,
    )  # fmt: skip


# What follows does not depend on a model, so it is drawn once for all runs of a task.


@lru_cache
def held_out(task: TextTask, n_rows: int) -> tuple[Batch, np.ndarray]:
    """Return held-out sequences, and the number of bytes of each target."""
    from ihlab.measure.batches import EVAL_SEED, draw

    batch = draw(task, EVAL_SEED, "eval", 2, n_rows)
    return batch, task.n_bytes(batch.targets)


@lru_cache
def held_out_classes(task: TextTask, n_rows: int, context: int) -> np.ndarray:
    """Return the class of each position of `held_out`, by `context` bytes before it (see `position_classes`)."""
    from ihlab.measure.text import position_classes

    batch, _ = held_out(task, n_rows)
    return position_classes(task, batch.inputs, batch.targets, context)


@lru_cache
def repeated(task: TextTask, n_rows: int) -> "RepeatedText":
    """Return held-out text, each sequence repeated once."""
    from ihlab.measure.text import repeated_text

    return repeated_text(task, n_rows)
