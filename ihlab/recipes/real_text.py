"""The run on real text, and the text on which models are measured, which several studies share."""

from functools import lru_cache

import numpy as np

from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import Batch, TextTask


def text_run() -> RunConfig:
    """Return the run of two vanilla layers on byte pairs of the standard library's sources."""
    task = TextTask(vocab_size=1024, length=256)
    model = ModelConfig(
        n_layers=2, d_model=96, n_heads=3, d_vocab=task.vocab_size, n_ctx=task.length
    )
    return RunConfig(
        task=task, model=model, steps=600, batch_size=8, schedule="linear", eval_every=30, eval_rows=64,
        eval_growth=0.0, checkpoints=21, compile=True,
    )  # fmt: skip


@lru_cache
def held_out(task: TextTask, n_rows: int) -> tuple[Batch, np.ndarray]:
    """Return held-out sequences, and the number of bytes of each target."""
    from ihlab.measure.batches import EVAL_SEED, draw

    batch = draw(task, EVAL_SEED, "eval", 2, n_rows)
    return batch, task.n_bytes(batch.targets)
