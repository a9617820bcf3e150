"""Does it matter that a token shift leaks from one packed document into the next?

Training packs documents into one sequence. Shifts, convolutions and smears then mix the last token of a document into
the first one of the next, unless they are reset there. Projects argue about this fix with single runs. The usual guess
is that the leak says "a document starts here": it should lower the loss, but not if a BOS token says so.

Documents are paragraphs of docstrings, 35 tokens in the median and 57 in the mean. So one position in 57 is a boundary:
among long documents an effect on the whole loss would be smaller in proportion. All end with a line break, and half of
the line breaks end a document. Distance 1 is the target predicted at a document's first token of text. The loss of
predicting that token itself is not measured, because it is a target only with BOS. The *excess* at a distance is the
loss there minus that beyond distance 3, in which the level of a whole run cancels.

Predictions, made before the runs. A reset marks a document's start more surely than a line break, and the first word
marks it, too. So the leak gains nothing at distance 1, with or without BOS, and changes nothing in the whole loss. But
a model trained with a leak into the residual stream or into values has a higher loss when its document stands alone, as
prompts do. A leak into keys does no such harm: under the mask the first token attends only to itself, so nothing
changes at distance 1, and little at distance 2. Attention across documents costs more than any leak.

`MATTERS`, .05, is about 2% of the loss at distance 1, and a bit more than the difference in whole loss between two runs
of a pilot (seed 99), .03: a few seeds cannot show much less. All cells have one learning rate, vanilla's in an earlier
study (`mixes`): no claim compares two variants. Runs of one seed see the same documents in the same order and are
compared by seed. BOS adds a token and a target per document (2%), on both sides of each comparison.

Asked after five seeds of 200 steps: smear's gate starts at 0 and may hardly have opened, so that nothing could leak. So
smear and the convolution are also trained four times as long, with the same predictions and thresholds. K only followed
after their results, to test whether its leak matters later. The prediction is that it does not.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY, VANILLA
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, claim_id, described, values
from ihlab.study.study import Run, Scale, Study
from ihlab.training.config import RunConfig
from tasks import IGNORE, Batch, TextTask

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer

SMEAR_EMBED, CONV = "smear, embedding", "conv KV"
LEAK, ZERO, OWN, MASKED, OPEN = "leak", "zero", "own", "masked", "open"
VARIANTS: dict[str, dict[str, Any]] = {
    VANILLA: {},
    K_ONLY: {"attention": "k_shift"},
    SMEAR_EMBED: {"smear": "embedding"},
    CONV: {"canon": "KV"},
}
LEAKS: dict[Any, Any] = {
    (MASKED, ZERO): "none",
    (MASKED, LEAK): "shift",
    (OPEN, ZERO): "attention",
    (OPEN, LEAK): "both",
}
"""`ModelConfig.document_leak`, keyed by attention and rule."""

MATTERS = 0.05
"""Nats per target from which a difference matters."""
NEAR = (1, 2, 3)
"""Distances that are measured alone; `more` is all others."""


STEPS, LONGER = 200, 800


def where(variant: str, rule: str, attention: str = MASKED, bos: str = "no BOS", steps: int = STEPS) -> Cell:
    """Return the cell of these conditions."""
    return {"variant": variant, "rule": rule, "attention": attention, "bos": bos, "steps": steps}


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the run of one layer of a variant that reads packed documents by a rule."""
    small, rule, bos = scale == "smoke", cell["rule"], cell["bos"] == "BOS"
    leak = LEAKS[cell["attention"], LEAK if rule == LEAK else ZERO]
    corpus, vocab_size, length, width = ("sample", 300, 40, 16) if small else ("stdlib", 512, 128, 48)
    task = TextTask(corpus=f"{corpus}:paragraphs", vocab_size=vocab_size, length=length, pack=True, bos=bos)
    model = ModelConfig(
        n_layers=1,
        d_model=width,
        n_heads=2,
        d_vocab=vocab_size,
        n_ctx=length,
        **VARIANTS[cell["variant"]],
        document_leak=leak,
    )
    model = model.replace(shift_first=OWN) if rule == OWN else model
    run = RunConfig(
        task=task, model=model, steps=cell["steps"], batch_size=8, lr=1.6e-2, warmup=50, schedule="linear",
        eval_every=200, eval_growth=0.0, eval_rows=64, checkpoints=2,
    )  # fmt: skip
    return run.replace(steps=12, batch_size=4, warmup=4, eval_rows=8) if small else run


@lru_cache
def held_out(task: TextTask, rows: int) -> Batch:
    """Return packed documents that training never sees."""
    from ihlab.measure.batches import EVAL_SEED, draw

    return draw(task, EVAL_SEED, "eval", 2, rows, packed=True)


def distances(batch: Batch, bos: bool) -> np.ndarray:
    """Return each target's distance from its document's first token: 0 after BOS, large if the sequence lacks it."""
    place, starts = np.arange(batch.inputs.shape[1]), np.asarray(batch.document_starts, dtype=bool)
    start = np.maximum.accumulate(np.where(starts, place, -len(place)), axis=1)
    return place - start + 1 - bos


def losses(model: "Transformer", batch: Batch, leak: str | None = None) -> np.ndarray:
    """Return the loss of each target of packed documents, with the model's own `document_leak` or another."""
    from ihlab.measure.gathered import document_starts
    from ihlab.measure.text import token_losses
    from ihlab.model.documents import packed

    by_chunk = []
    for chunk in (batch.rows(i, i + 32) for i in range(0, len(batch.inputs), 32)):
        with packed(model, document_starts(chunk), leak):
            by_chunk.append(token_losses(model, chunk.inputs, chunk.targets))
    return np.concatenate(by_chunk)


def by_distance(name: str, losses: np.ndarray, batch: Batch, bos: bool) -> dict[str, float]:
    """Return the mean loss of all targets of text, and by their distance: name, name_1, ..., name_more."""
    away, scored = distances(batch, bos), batch.targets != IGNORE
    parts = {f"{name}_{near}": away == near for near in NEAR} | {f"{name}_more": away > max(NEAR), name: away > 0}
    return {column: float(losses[mask & scored].mean()) for column, mask in parts.items()}


def error_alone(model: "Transformer", batch: Batch) -> float:
    """Return the largest difference of a loss between a packed document with all resets and the same one alone."""
    from ihlab.measure.text import token_losses

    places = np.arange(batch.inputs.size)
    cuts = places[(places % batch.inputs.shape[1] == 0) | np.asarray(batch.document_starts).ravel()][1:]
    parts = zip(*(np.split(x.ravel(), cuts) for x in (batch.inputs, batch.targets)), strict=True)
    alone = np.concatenate([token_losses(model, inputs[None], targets[None])[0] for inputs, targets in parts])
    return float(np.abs(losses(model, batch, "none").ravel() - alone).max())


def measure(run: Run) -> dict[str, float]:
    """Measure a finished model on held-out documents, in nats per target.

    - loss, and loss_1, loss_2, loss_3, loss_more by distance: packed as in training;
    - alone, alone_1, ...: the same targets, each document alone;
    - alone_error: `error_alone` in float64;
    - gate: the mean of smear's gate, 0 at the start.
    """
    task = run.config.task
    if run.diverged or not run.checkpoints or not isinstance(task, TextTask):
        return {}
    model, batch = run.model(), held_out(task, 8 * run.config.eval_rows)
    as_trained = losses(model, batch)
    alone = as_trained if model.cfg.document_leak == "none" else losses(model, batch, "none")
    row = by_distance("loss", as_trained, batch, task.bos) | by_distance("alone", alone, batch, task.bos)
    few = batch.rows(0, 4)
    if model.smear is not None:
        tokens = model.to_tokens(few.inputs)
        row["gate"] = float(model.run_with_cache(tokens, names_filter="smear.hook_gate")[1]["smear.hook_gate"].mean())
    return row | {"alone_error": error_alone(model.double(), few)}


# Questions

EXCESS = "loss_1 - loss_more"
"""The excess at distance 1."""


def ask(
    id: str, settings: tuple[str, ...], sentence: str, column: str, one: Cell, other: Cell, **threshold: float
) -> Ask:
    """Ask about the difference of two cells in a column, mean over seeds; with `below`, about its absolute value."""
    size = "below" in threshold

    def estimate(data: pd.DataFrame) -> stats.Estimate:
        difference = stats.mean(np.subtract(values(data, one, column), values(data, other, column)).tolist())
        return stats.size(difference) if size else difference

    what = f"{'size of ' * size}{column}, {one['rule']}, {one['attention']}, less {other['rule']}, {other['attention']}"
    return Ask(
        claim_id(id, *settings),
        f"{sentence} ({', '.join(settings)}).",
        described(f"{what}, nats per target", estimate, one),
        above=threshold.get("above"),
        below=threshold.get("below"),
        setting={"variant": settings[0], "condition": ", ".join(settings[1:])},
        source="a question of the field about packing",
    )


def of_shift(variant: str, attentions: tuple[str, ...] = (MASKED, OPEN), steps: int = STEPS) -> list[Ask]:
    """Ask how much the leak of a shift changes the loss, and what a model trained with it loses on a document alone."""
    asks, longer = [], () if steps == STEPS else (f"{steps} steps",)
    for attention in attentions:
        leak, zero = (where(variant, rule, attention, steps=steps) for rule in (LEAK, ZERO))
        helps, whole = "A leak lowers the loss at a document's start", "A leak does not matter for the whole loss"
        asks.append(ask("leak_helps", (variant, attention, *longer), helps, EXCESS, zero, leak, above=MATTERS))
        asks.append(ask("leak_in_whole", (variant, attention, *longer), whole, "loss", leak, zero, below=MATTERS))
    if OPEN in attentions:
        leak, zero = (where(variant, rule, bos="BOS", steps=steps) for rule in (LEAK, ZERO))
        nothing = "A leak is worth nothing at a document's start"
        asks.append(ask("leak_with_bos", (variant, "BOS", *longer), nothing, EXCESS, leak, zero, below=MATTERS))
    leak, zero = (where(variant, rule, steps=steps) for rule in (LEAK, ZERO))
    alone = "when its document stands alone"
    if variant == K_ONLY:  # at distance 1 the difference is 0 exactly
        words, column = f"A model trained with a leak loses nothing {alone}", "alone_2 - loss_2"
        return [*asks, ask("leak_alone", (variant, *longer), words, column, leak, zero, below=MATTERS)]
    words = f"A model trained with a leak loses {alone}"
    return [*asks, ask("leak_alone", (variant, *longer), words, "alone_1 - loss_1", leak, zero, above=MATTERS)]


ASKS = (
    *(each for variant in (K_ONLY, SMEAR_EMBED, CONV) for each in of_shift(variant)),
    *of_shift(SMEAR_EMBED, steps=LONGER),
    *of_shift(CONV, (MASKED,), LONGER),
    *of_shift(K_ONLY, (MASKED,), LONGER),
    ask(
        "own_in_whole", (K_ONLY,), "The rules own and zero do not differ in the whole loss", "loss",
        where(K_ONLY, OWN), where(K_ONLY, ZERO), below=MATTERS,
    ),
    ask(
        "open_attention", (VANILLA,), "Attention across documents raises the loss", "loss",
        where(VANILLA, ZERO, OPEN), where(VANILLA, ZERO), above=0.0,
    ),
    Ask(
        "packed_is_alone", "A packed document has the loss that it has alone, if nothing leaks.",
        described("largest difference of a loss, all runs", lambda data: stats.exact(float(data["alone_error"].max()))),
        below=2e-6,  # losses are rounded to float32
    ),
)  # fmt: skip


def leaks(data: pd.DataFrame) -> Figure:
    """Draw how much the leak raises the loss at each distance, by seed."""
    keys, rows = ["variant", "attention", "bos", "steps", "seed"], data.set_index("rule")
    columns = {f"loss_{near}": f"distance {near}" for near in NEAR} | {"loss_more": "further"}
    zero, leak = (rows.loc[rule].set_index(keys)[list(columns)] for rule in (ZERO, LEAK))
    cost = (leak - zero).dropna().rename(columns=columns).reset_index()
    longer = np.where(cost["steps"] == STEPS, "", ", " + cost["steps"].astype(str) + " steps")
    cost["setting"] = cost["variant"] + ", " + cost["attention"] + longer
    reach = 1.1 * float(cost[list(columns.values())].abs().to_numpy().max())
    view = dots(
        "setting",
        list(columns.values()),
        panels="bos",
        xlabel="nats per target that the leak costs",
        lines=(0.0,),
        xlim=(-reach, reach),
        log=False,
    )
    return view(cost)


RULES = {VANILLA: (ZERO,), K_ONLY: (LEAK, ZERO, OWN), SMEAR_EMBED: (LEAK, ZERO), CONV: (LEAK, ZERO)}
CELLS = [
    *(where(variant, rule) for variant, rules in RULES.items() for rule in rules),
    *(where(variant, rule, OPEN) for variant, rules in RULES.items() for rule in rules if rule != OWN),
    *(where(variant, rule, bos="BOS") for variant, rules in RULES.items() for rule in rules[:2] if variant != VANILLA),
    *(where(variant, rule, steps=LONGER) for variant in (SMEAR_EMBED, CONV, K_ONLY) for rule in (LEAK, ZERO)),
    *(where(SMEAR_EMBED, rule, OPEN, steps=LONGER) for rule in (LEAK, ZERO)),
    *(where(SMEAR_EMBED, rule, bos="BOS", steps=LONGER) for rule in (LEAK, ZERO)),
]
PACKING = Study(
    name="packing",
    title="What a leak from the document before costs, by the distance from a document's first token",
    caption="Dot: a seed. Bar: the median. Leak less zero: right of 0, the leak costs.",
    declared="2026-11-27",
    cells=CELLS,
    smoke_cells=[cell for cell in CELLS if cell["variant"] == SMEAR_EMBED and cell["steps"] == STEPS],
    config=config,
    measure=measure,
    seeds=lambda cell: range(8 if cell["steps"] == STEPS else 5),
    asks=ASKS,
    view=leaks,
    summary_columns=("loss_1", "loss_2", "loss_3", "loss_more", "loss", "alone_1", "alone"),
)
