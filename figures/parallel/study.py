"""Does a narrow model find fewer answers of induction at once?

"This limitation in width will result in the model considering a limited number of different
implicit inductions in parallel, or introducing noise in superposition" (arXiv 2411.19574, section
3.2). Here the last token of a sequence occurred once or four times before, each time with another
follower, and the target is one of the followers (`RepeatTask`). The best prediction is uniform on
all of them, so the last position has to hold several answers at once.

The measure is the fraction of the n followers that are among the n most likely tokens. A random
choice among the sequence's other tokens finds 1/14 or 4/11 of them. One layer of KV shifting and
two of vanilla attention, both with one head, learn each number of followers at widths 8 and 32, at
the learning rate with the lowest loss.

Prediction: at width 8 a single follower is found, and the fraction found of four followers is lower
by .2. At width 32 four followers are found nearly as well as one. Measures and thresholds were
fixed before the runs.

The paper speaks of vanilla attention, which the first version left out, because it learns induction
unreliably at width 8 (Figure 1b). It has four times the steps here. Prediction, before its runs: at
width 8 it does not find a single follower, so nothing can be compared there; at width 32 it finds
nearly as many of four.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.induction import KV1, V2
from ihlab.study import stats
from ihlab.study.ask import Ask, difference, mean_over_seeds, untested_if, values
from ihlab.study.study import Grid, Run, Study, Tuned, cells
from ihlab.training.config import RunConfig
from tasks import RepeatTask

FOUND = "fraction of the followers that are among the most likely tokens"
FEWER, NEARLY = 0.2, 0.1
"""Differences that count as "fewer" and as "nearly as many"."""
SEQUENCES = 512
TASK = RepeatTask(vocab_size=64, length=16)
MODEL = ModelConfig(n_layers=1, d_model=32, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=TASK.length)
GRID = Grid(
    RunConfig(
        task=TASK,
        model=MODEL,
        batch_size=128,
        warmup=20,
        weight_decay=0.0,
        checkpoints=2,
        eval_every=100,
    ),
    {
        "variant": {
            KV1: {"attention": "kv_shift", "steps": 600},
            V2: {"n_layers": 2, "steps": 2400},
        },
        "width": {8: {"d_model": 8}, 32: {}},
        "followers": {1: {}, 4: {"followers": 4}},
    },
)
LEARNED = 0.9
"""A model has learned induction if it finds at least this fraction of single followers."""


def followers_found(run: Run) -> dict[str, float]:
    """Return the mean fraction of a sequence's n followers that are among the n most likely tokens
    at its end.
    """
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


def not_learned(variant: str, width: int, data: pd.DataFrame) -> str:
    """Return why a model that finds too few single followers (a mean below `LEARNED`) is not
    compared on four.
    """
    single = np.array(values(data, {"variant": variant, "width": width, "followers": 1}, "found"))
    some = f"{(single >= LEARNED).sum()} of {len(single)} runs find a single follower (mean {single.mean():.2f})"
    if single.mean() >= LEARNED:
        return ""
    return f"{variant}, width {width}: only {some}."


def asks_of(variant: str) -> list[Ask]:
    """Ask how many followers a variant finds at each width."""
    narrow_one, narrow_four, wide_one, wide_four = (
        {"variant": variant, **cell} for cell in cells(width=(8, 32), followers=(1, 4))
    )
    ask = partial(Ask, setting={"model": variant}, statement=11, source="section 3.2")
    narrow = difference(narrow_one, narrow_four, "found")
    wide = difference(wide_one, wide_four, "found")
    suffix = ""
    if variant != KV1:
        suffix = ".vanilla"
        narrow = untested_if(partial(not_learned, variant, 8), narrow)
        wide = untested_if(partial(not_learned, variant, 32), wide)
    return [
        ask(
            f"one_if_narrow{suffix}",
            f"At width 8 {variant}, finds a single follower.",
            mean_over_seeds("found", narrow_one, stats.SHARE, FOUND),
            above=LEARNED,
        ),
        ask(
            f"fewer_if_narrow{suffix}",
            f"At width 8 {variant}, finds fewer of four followers at once than of one.",
            narrow,
            above=FEWER,
        ),
        ask(
            f"all_if_wide{suffix}",
            f"At width 32 {variant}, finds nearly as many of four followers at once as of one.",
            wide,
            below=NEARLY,
        ),
    ]


def view(data: pd.DataFrame) -> Figure:
    """Draw the fraction that each model finds."""
    words = data.assign(
        width=data["width"].map("width {}".format),
        followers=data["followers"].map({1: "one", 4: "four"}),
    )
    draw = dots(
        "followers",
        "found",
        panels="width",
        colors="variant",
        xlabel="fraction of followers found",
        xlim=(0, 1.03),
    )
    return draw(words)


PARALLEL = Study(
    name="parallel",
    heading="Parallel inductions: do narrow models find fewer?",
    title="How many of one or four followers does a narrow model find?",
    caption="Dot: a seed. Bar: the median.",
    declared="2026-11-27",
    cells=GRID.cells,
    config=GRID,
    tuned=Tuned(rates=(1e-2, 2.5e-2), by="loss"),
    measure=followers_found,
    asks=[*asks_of(KV1), *(replace(ask, declared="2026-11-28") for ask in asks_of(V2))],
    summary_columns=("found",),
    view=view,
)
