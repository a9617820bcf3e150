"""Which layer's attention becomes idle if short convolutions read the previous tokens?

A large run of Marin has convolutions of kernel 4 at keys and at the outputs of attention and MLP, and a gate on each
head's output. Evaluated on the whole vocabulary, 98.3% of the gates of layer 0 are below 1/20 of their middle
(marin-community/marin 8820). It is one run, without a control. Here the same parts are in small models whose task is
known: `canon` at K, O and M, each alone, all together and none, with `attention="output_gate"`. All its gates start at
their middle, 1/2.

**Two measures.** A layer is *idle* if the loss rises by less than `IDLE` when the output of its attention, after
the convolution that follows, is replaced at each position by the mean over sequences. Convolutions *shut* the first
layer's gates if they lower its mean gate by `SHUT`. A gate without use gets no gradient, so a layer may be idle and
open.

**Predictions.** Induction needs the previous token once. With two layers and no convolution both layers are needed.
With shifted keys (K), or the previous token in the stream after the first block (M), one layer does it and the other is
idle. A convolution after attention (O) makes no layer idle: it shifts the output of layer 0, whose heads must attend to
their own token. Two hops need two matches: of three layers, models with K, M or all three sites have an idle one, and
models with none or O do not. Two extra layers add two idle ones, with or without convolutions. On text no layer is
idle, because there is always more to read. Gates do not tell which layer is idle.

A pilot with seed 99 (none, O, KOM) chose steps, rates and `IDLE`. There all models learned. In KOM layer 0 was idle for
induction and layer 2, at .075 nats, for two hops. Layer 0 had a mean gate of .31, but .37 without convolutions. So
the last prediction is known to hold at one seed. All models of a task have one rate. Measures, thresholds and seeds
were fixed before the runs.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.real_text import text_run
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, claim_id, of_kind, values
from ihlab.study.study import Run, Scale, Study, cells
from ihlab.training.config import RunConfig
from tasks import InductionTask, MultiHopTask, Task

NO_CONV, SITES = "none", ("none", "K", "O", "M", "KOM")
INDUCTION, DEEP, HOPS, TEXT = "induction, 2 layers", "induction, 4 layers", "2 hops, 3 layers", "text, 3 layers"
TASKS: dict[str, Task] = {
    INDUCTION: InductionTask(vocab_size=128, length=32),
    DEEP: InductionTask(vocab_size=128, length=32),
    HOPS: MultiHopTask(vocab_size=9, length=33, max_hops=2),
}
STEPS = {INDUCTION: 1000, DEEP: 1000, HOPS: 1000}
RATES = {INDUCTION: 8e-3, DEEP: 8e-3, HOPS: 8e-3, TEXT: 8e-3}
IDLE = 0.1
"""A layer is idle if the loss rises by fewer nats than this when its attention is removed."""
LEARNED = 0.9
"""A toy model with a lower accuracy counts against every prediction, because what it would need is unknown."""
SHUT = 0.1
"""Difference of mean gates that counts."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the run of a task with convolutions at some sites."""
    task, layers = cell["task"], int(cell["task"].split(", ")[1][0])
    fields = {"attention": "output_gate", "canon": cell["sites"].replace(NO_CONV, ""), "n_layers": layers}
    if task == TEXT:
        run = text_run(scale)
        return run.replace(model=run.model.replace(**fields), lr=RATES[task], checkpoints=2)
    shape = ModelConfig(d_model=32, n_heads=4, d_vocab=TASKS[task].vocab_size, n_ctx=TASKS[task].length, **fields)
    run = RunConfig(
        task=TASKS[task], model=shape, steps=STEPS[task], batch_size=64, lr=RATES[task], warmup=50,
        schedule="trapezoid", checkpoints=2, eval_every=100, eval_growth=0.0, eval_rows=256,
    )  # fmt: skip
    return run.replace(steps=10, batch_size=8, eval_rows=16) if scale == "smoke" else run


def measure(run: Run) -> dict[str, float]:
    """Return accuracy and loss, and for each layer the `rise` of the loss without its attention and its mean `gate`.

    least: the smallest rise; idle: the number of idle layers; match: whether the layer with the lowest gate is the one
    with the smallest rise.
    """
    import torch

    model, layers = run.model(), range(run.config.model.n_layers)
    batch = draw(run.config.task, EVAL_SEED, "eval", 0, run.config.eval_rows)
    tokens, scored = torch.as_tensor(batch.inputs), torch.as_tensor(batch.targets)

    def loss(logits: torch.Tensor) -> float:
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), scored.flatten()))

    def without(layer: int) -> float:
        removed = (f"blocks.{layer}.hook_attn_out", lambda x, hook: x.mean(0, keepdim=True).expand_as(x))
        return loss(model.run_with_hooks(tokens, fwd_hooks=[removed]))

    names = [f"blocks.{layer}.attn.hook_out_gate" for layer in layers]
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens, names_filter=names)
        whole = loss(logits)
        rises = [without(layer) - whole for layer in layers]
    gates = [float(cache[name].mean()) for name in names]
    return {
        "accuracy": float(run.metrics["accuracy"].iloc[-1]),
        "loss": whole,
        "least": min(rises),
        "idle": float(np.sum(np.array(rises) < IDLE)),
        "match": float(np.argmin(gates) == np.argmin(rises)),
        **{f"rise_{i}": rise for i, rise in enumerate(rises)},
        **{f"gate_{i}": gate for i, gate in enumerate(gates)},
    }


def idle(cell: Cell, predicted: bool) -> Ask:
    """Ask whether most seeds have an idle layer, or whether most have none. It is counted, not sampled."""

    def number(data: pd.DataFrame) -> Measured:
        rises, accuracy = (values(data, cell, column) for column in ("least", "accuracy"))
        smallest = ", ".join(f"{rise:.2g}" for rise in rises)
        counts = np.array(accuracy) >= (0 if cell["task"] == TEXT else LEARNED)
        agrees = np.mean(counts & ((np.array(rises) < IDLE) == predicted)) > 0.5
        words = f"1 if so (smallest rise of the loss, nats: {smallest}; lowest accuracy {min(accuracy):.2f})"
        return Measured(words, stats.exact(float(agrees)), len(rises))

    what = "one layer's attention can be removed" if predicted else "no layer's attention can be removed"
    models = f"with convolutions at {cell['sites']}" if cell["sites"] != NO_CONV else "without convolutions"
    return Ask(
        claim_id("idle", cell["task"], cell["sites"]),
        f"In most models {models} ({cell['task']}), {what}.",
        number,
        above=0.5,
        setting=dict(cell),
        source="a prediction of our own",
    )


def shuts(task: str) -> Ask:
    """Ask whether convolutions shut the gates of the first layer."""

    def number(data: pd.DataFrame) -> Measured:
        open_, shut = (values(data, {"task": task, "sites": sites}, "gate_0") for sites in (NO_CONV, "KOM"))
        words = f"mean gate of layer 0, none ({np.mean(open_):.2f}) minus KOM ({np.mean(shut):.2f})"
        return Measured(words, stats.difference(open_, shut, stats.DIFFERENCE), len(shut))

    return Ask(
        claim_id("shuts", task),
        f"Convolutions at keys and at both outputs shut the first layer's gates ({task}).",
        number,
        above=SHUT,
        setting={"task": task},
        source="a question to marin-community/marin 8820",
    )


def tells(data: pd.DataFrame) -> Measured:
    """Return the fraction of toy models with an idle layer whose lowest gate is in the least needed layer."""
    rows = of_kind(data)
    rows = rows[(rows["task"] != TEXT) & (rows["least"] < IDLE)]
    words = f"fraction of {len(rows)} toy models with an idle layer whose lowest mean gate is that of the smallest rise"
    return Measured(words, stats.share(int(rows["match"].sum()), len(rows)), int(rows["seed"].nunique()))


def rises(data: pd.DataFrame) -> Figure:
    """Draw how much the loss rises without each layer's attention, by seed."""
    layers = {f"rise_{i}": f"layer {i}" for i in range(4) if f"rise_{i}" in data}
    view = dots("sites", list(layers.values()), panels="task", xlabel="nats that the loss rises", lines=(IDLE,))
    return view(data.rename(columns=layers))


CELLS = [
    *cells(task=(INDUCTION, HOPS), sites=SITES),
    *cells(task=(DEEP, TEXT), sites=(NO_CONV, "KOM")),
]
IDLE_LAYERS = Study(
    name="idle_layers",
    title="How much the loss rises if one layer's attention is replaced by its mean",
    caption="Dot: a seed. Bar: the median. Dotted: the rise below which a layer is idle. Rows: places of convolutions.",
    declared="2026-11-28",
    cells=CELLS,
    smoke_cells=CELLS[:2],
    config=config,
    measure=measure,
    seeds=lambda cell: range(5 if cell["task"] == INDUCTION else 3 if cell["task"] == TEXT else 4),
    asks=[
        *(idle(cell, cell["sites"] in ("K", "M", "KOM")) for cell in cells(task=(INDUCTION, HOPS), sites=SITES)),
        *(idle(cell, predicted=True) for cell in cells(task=(DEEP,), sites=(NO_CONV, "KOM"))),
        *(idle(cell, predicted=False) for cell in cells(task=(TEXT,), sites=(NO_CONV, "KOM"))),
        *map(shuts, (INDUCTION, HOPS, DEEP, TEXT)),
        Ask(
            "tells",
            "The layer with the lowest mean gate is the least needed one in most models with an idle layer.",
            tells,
            above=0.5,
            source="a question to marin-community/marin 8820",
        ),
    ],
    view=rises,
    summary_columns=("accuracy", "idle", *(f"{what}_{i}" for what in ("rise", "gate") for i in range(4))),
)
