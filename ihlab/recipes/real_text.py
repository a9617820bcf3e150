"""The run on real text, which several studies share."""

from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import TextTask


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
