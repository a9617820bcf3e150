"""Does a narrow model find fewer answers of induction at once?

"This limitation in width will result in the model considering a limited number of different implicit inductions in
parallel, or introducing noise in superposition" (arXiv 2411.19574, section 3.2). Here the last token of a sequence
occurred once or four times before, each time with another follower, and the target is one of the followers
(`RepeatTask`). The best prediction is uniform on all of them, so the last position has to hold several answers at once.

The measure is the fraction of the n followers that are among the n most likely tokens. A random choice among the
sequence's other tokens finds 1/14 or 4/11 of them. One layer of KV shifting with one head learns each number of
followers at widths 8 and 32, at the learning rate with the lowest loss. Vanilla attention does not learn induction
reliably at width 8 (Figure 1b), so it cannot show what happens with several.

Prediction: at width 8 a single follower is found, and the fraction found of four followers is lower by .2.
At width 32 four followers are found nearly as well as one. Measures and thresholds were fixed before the runs.
"""

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, less, mean
from ihlab.study.experiment import Scale
from ihlab.study.study import Study, Tuned, cells
from ihlab.training.config import RunConfig
from tasks import RepeatTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

FOUND = "fraction of the followers that are among the most likely tokens"
FEWER, NEARLY = 0.2, 0.1
"""Differences that count as "fewer" and as "nearly as many"."""
SEQUENCES = 512
NARROW_ONE, NARROW_FOUR, WIDE_ONE, WIDE_FOUR = cells(width=(8, 32), followers=(1, 4))


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of one layer of KV shifting."""
    task = RepeatTask(vocab_size=64, length=16, followers=cell["followers"])
    model = ModelConfig(
        n_layers=1, d_model=cell["width"], n_heads=1, d_vocab=task.vocab_size, n_ctx=task.length, attention="kv_shift"
    )
    run = RunConfig(
        task=task, model=model, steps=600, batch_size=128, warmup=20, weight_decay=0.0, checkpoints=2, eval_every=100
    )
    return run.replace(steps=12, batch_size=8, eval_rows=32) if scale == "smoke" else run


def found(run: "Run") -> dict[str, float]:
    """Return the mean fraction of a sequence's n followers that are among the n most likely tokens at its end."""
    import torch

    task = run.config.task
    assert isinstance(task, RepeatTask)
    inputs = draw(task, EVAL_SEED, "eval", 0, SEQUENCES).inputs
    with torch.no_grad():
        logits = run.model()(torch.as_tensor(inputs))[:, -1].numpy()
    n = task.followers
    likely = logits.argsort(axis=1)[:, -n:]
    again = inputs[:, :-1] == inputs[:, -1:]
    followers = inputs[:, 1:][again].reshape(len(inputs), n)
    return {"found": float((likely[:, :, None] == followers[:, None]).any(axis=1).mean())}


def view(data: pd.DataFrame) -> Figure:
    """Draw the fraction that each model finds."""
    words = data.assign(
        width=data["width"].map("width {}".format), followers=data["followers"].map({1: "one", 4: "four"})
    )
    return dots("followers", "found", panels="width", xlabel="fraction of followers found", xlim=(0, 1.03))(words)


PARALLEL = Study(
    name="parallel",
    title="How many of one or four followers does one layer of KV shifting find?",
    caption="Dot: a seed. Bar: the median.",
    declared="2026-11-27",
    cells=cells(width=(8, 32), followers=(1, 4)),
    config=config,
    tuned=Tuned(rates=(1e-2, 2.5e-2), by="loss", smoke=(1e-2,)),
    measure=found,
    asks=[
        Ask(
            "one_if_narrow",
            "At width 8 one layer of KV shifting finds a single follower.",
            mean("found", NARROW_ONE, stats.SHARE, FOUND), above=0.9, statement=11, source="section 3.2",
        ),
        Ask(
            "fewer_if_narrow",
            "At width 8 one layer of KV shifting finds fewer of four followers at once than of one.",
            less("found", NARROW_ONE, NARROW_FOUR), above=FEWER, statement=11, source="section 3.2",
        ),
        Ask(
            "all_if_wide",
            "At width 32 one layer of KV shifting finds nearly as many of four followers at once as of one.",
            less("found", WIDE_ONE, WIDE_FOUR), below=NEARLY, statement=11, source="section 3.2",
        ),
    ],
    summary_columns=("found",),
    view=view,
)  # fmt: skip
