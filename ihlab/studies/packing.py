"""Does it matter that a token shift leaks from one packed document into the next?

Training packs documents into one sequence. Shifts, convolutions and smears then mix the last token of a document into
the first one of the next, unless they are reset there. Projects argue about this fix with single runs. The usual guess
is that the leak says "a document starts here": it is then worth something, and nothing if a BOS token says so.

Documents are paragraphs of docstrings, 35 tokens in the median and 57 in the mean. So one position in 57 is a boundary:
among long documents an effect on the whole loss would be smaller in proportion. All end with a line break, and half of
the line breaks end a document. Distance 1 is the target predicted at a document's first token of text. That token's own
target is not measured, because only BOS makes it one. The *excess* at a distance is its loss less that beyond distance
3: the luck of a whole run cancels in it.

Predictions, made before the runs. A reset marks a document's start more surely than a line break, and the first word
marks it, too. So the leak gains nothing at distance 1, with or without BOS, and changes nothing in the whole loss. What
is mixed into the stream or into values does something else: a model trained with that leak loses when its document
stands alone, as prompts do. A shifted key does not, since under the mask the first token attends only to itself.
Attention across documents costs more than any leak.

`MATTERS` is about 2% of the loss at distance 1. `WHOLE` is a bit more than the difference of two runs of a pilot (seed
99), .03: five seeds cannot show less. All cells have one learning rate, vanilla's of `mixes`: no claim compares two
variants. Runs of one seed see the same documents in the same order and are compared by seed. BOS adds a token and a
target per document (2%), on both sides of each comparison.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.ask import Ask, Cell, claim_id, named, values
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import K_ONLY, VANILLA
from ihlab.claims.study import Run, Study
from ihlab.claims.token_shifts import SMEAR_EMBED
from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.training.config import RunConfig
from tasks import IGNORE, Batch, TextTask

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer

CONV = "conv KV"
VARIANTS: dict[str, dict[str, Any]] = {
    VANILLA: {}, K_ONLY: {"attention": "k_shift"}, SMEAR_EMBED: {"smear": "embedding"}, CONV: {"canon": "KV"},
}  # fmt: skip
SHIFTS = (K_ONLY, SMEAR_EMBED, CONV)
LEAK, ZERO, OWN = "leak", "zero", "own"
MASKED, OPEN = "masked", "open"
LEAKS: dict[tuple[str, bool], Any] = {
    (MASKED, False): "none",
    (MASKED, True): "shift",
    (OPEN, False): "attention",
    (OPEN, True): "both",
}
"""`ModelConfig.document_leak`, by attention and whether the shift leaks."""

MATTERS, WHOLE = 0.05, 0.05
"""Nats per target from which a difference matters: in the excess at distance 1, and over all distances."""
EXCESS = "loss_1 - loss_more"
NEAR = (1, 2, 3)
"""Distances that are measured alone; `more` is all others."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the run of one layer of a variant that reads packed documents by a rule."""
    smoke = scale == "smoke"
    corpus, vocab_size, length = ("sample", 300, 40) if smoke else ("stdlib", 512, 128)
    task = TextTask(
        corpus=f"{corpus}:paragraphs", vocab_size=vocab_size, length=length, pack=True, bos=cell["bos"] == "BOS"
    )
    model = ModelConfig(
        n_layers=1, d_model=16 if smoke else 48, n_heads=2, d_vocab=vocab_size, n_ctx=length,
        document_leak=LEAKS[cell["attention"], cell["rule"] == LEAK], **VARIANTS[cell["variant"]],
        shift_first="own" if cell["rule"] == OWN else "zero",
    )  # fmt: skip
    if smoke:
        return RunConfig(task=task, model=model, steps=12, batch_size=4, warmup=4, eval_rows=8, checkpoints=2)
    return RunConfig(
        task=task, model=model, steps=250, batch_size=8, lr=1.6e-2, warmup=50, schedule="linear", eval_every=250,
        eval_growth=0.0, eval_rows=64, checkpoints=2,
    )  # fmt: skip


@lru_cache
def held_out(task: TextTask, rows: int) -> Batch:
    """Return packed documents that training never sees."""
    from ihlab.measure.batches import EVAL_SEED, draw

    return draw(task, EVAL_SEED, "eval", 2, rows, packed=True)


def starts_of(batch: Batch) -> np.ndarray:
    """Return the first tokens of a packed batch's documents."""
    assert batch.document_starts is not None
    return batch.document_starts


def distances(batch: Batch, bos: bool) -> np.ndarray:
    """Return the distance of each target from the first token of its document: 0 after BOS, large if not in sight."""
    place = np.arange(batch.inputs.shape[1])
    start = np.maximum.accumulate(np.where(starts_of(batch), place, -len(place)), axis=1)
    return place - start + 1 - bos


def losses(model: "Transformer", batch: Batch, leak: str | None = None) -> np.ndarray:
    """Return the loss of each target of packed documents, under the model's own leak or another."""
    from ihlab.measure.gathered import document_starts
    from ihlab.measure.text import token_losses
    from ihlab.model.documents import packed

    found = []
    for part in (batch.rows(i, i + 32) for i in range(0, len(batch.inputs), 32)):
        with packed(model, document_starts(part), leak):
            found.append(token_losses(model, part.inputs, part.targets))
    return np.concatenate(found)


def by_distance(name: str, found: np.ndarray, batch: Batch, bos: bool) -> dict[str, float]:
    """Return the mean loss of all targets of text, and by their distance: name, name_1, ..., name_more."""
    away, scored = distances(batch, bos), batch.targets != IGNORE
    parts = {f"{name}_{near}": away == near for near in NEAR} | {f"{name}_more": away > max(NEAR), name: away > 0}
    return {part: float(found[mask & scored].mean()) for part, mask in parts.items()}


def documents(batch: Batch) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the inputs and targets of each document."""
    for inputs, targets, starts in zip(batch.inputs, batch.targets, starts_of(batch), strict=True):
        for part in np.split(np.arange(len(inputs)), np.flatnonzero(starts)):
            if len(part):
                yield inputs[part], targets[part]


def measure(run: Run) -> dict[str, float]:
    """Measure a finished model on held-out documents, in nats per target.

    - loss, and loss_1, loss_2, loss_3, loss_more by distance: packed as in training;
    - alone, alone_1, ...: the same targets, each document alone;
    - alone_error: the largest difference of a loss between a document packed with all resets and the same alone.
    """
    from ihlab.measure.text import token_losses

    task = run.config.task
    if run.diverged or not run.checkpoints or not isinstance(task, TextTask):
        return {}
    model, batch = run.model(), held_out(task, 8 * run.config.eval_rows)
    row: dict[str, float] = {}
    for name, leak in (("loss", None), ("alone", "none")):
        row |= by_distance(name, losses(model, batch, leak), batch, task.bos)
    few, model = batch.rows(0, 4), model.double()
    alone = [token_losses(model, inputs[None], targets[None])[0] for inputs, targets in documents(few)]
    return row | {"alone_error": float(np.abs(losses(model, few, "none").ravel() - np.concatenate(alone)).max())}


# Questions


def where(variant: str, rule: str, attention: str = MASKED, bos: str = "no BOS") -> Cell:
    """Return a cell."""
    return {"variant": variant, "rule": rule, "attention": attention, "bos": bos}


def less(one: Cell, other: Cell, column: str) -> Any:
    """Return a function from a table to the difference of a column between two cells, by seed."""
    return lambda data: [a - b for a, b in zip(values(data, one, column), values(data, other, column), strict=True)]


def about(id: str, setting: dict[str, str], sentence: str, what: str, by_seed: Any, **threshold: Any) -> Ask:
    """Ask about the mean over seeds of a difference; below a threshold, about its size."""
    size = "below" in threshold

    def estimate(data: pd.DataFrame) -> stats.Estimate:
        found = stats.mean(by_seed(data))
        return stats.size(found) if size else found

    return Ask(
        claim_id(id, *setting.values()), f"{sentence} ({', '.join(setting.values())}).",
        named(f"{'size of the ' * size}{what}, nats per target", estimate), setting=setting,
        source="a question of the field about packing", **threshold,
    )  # fmt: skip


def of_shift(variant: str) -> list[Ask]:
    """Ask what the leak of a shift is worth, and what a model that was trained with it loses on a document alone."""
    asks, by, excess = [], {"variant": variant}, f"excess at distance {NEAR[0]}"
    for attention in (MASKED, OPEN):
        cell, setting = partial(where, variant, attention=attention), {**by, "attention": attention}
        asks += [
            about(
                "leak_helps", setting, "A leak lowers the loss at a document's start", f"{excess}, zero less leak",
                less(cell(ZERO), cell(LEAK), EXCESS), above=MATTERS,
            ),
            about(
                "leak_in_whole", setting, "A leak does not matter for the whole loss", "loss, leak less zero",
                less(cell(LEAK), cell(ZERO), "loss"), below=WHOLE,
            ),
        ]  # fmt: skip
    with_bos, loses = partial(where, variant, bos="BOS"), variant != K_ONLY
    asks += [
        about(
            "leak_with_bos", {**by, "start": "BOS"}, "With BOS a leak is worth nothing at a document's start",
            f"{excess}, leak less zero", less(with_bos(LEAK), with_bos(ZERO), EXCESS), below=MATTERS,
        ),
        about(
            "leak_alone", by,
            f"A model trained with a leak {'loses' if loses else 'loses nothing'} when its document stands alone",
            "loss at distance 1, alone less packed",
            lambda data: values(data, where(variant, LEAK), "alone_1 - loss_1"),
            **{"above" if loses else "below": MATTERS},
        ),
    ]  # fmt: skip
    return asks


ASKS = (
    *(ask for variant in SHIFTS for ask in of_shift(variant)),
    about(
        "own_in_whole", {"variant": K_ONLY}, "The rules own and zero do not differ", "loss, own less zero",
        less(where(K_ONLY, OWN), where(K_ONLY, ZERO), "loss"), below=WHOLE,
    ),
    about(
        "open_attention", {"variant": VANILLA}, "Attention across documents raises the loss", "loss, open less masked",
        less(where(VANILLA, ZERO, OPEN), where(VANILLA, ZERO), "loss"), above=0.0,
    ),
    Ask(
        "packed_is_alone", "A packed document has the loss that it has alone, if nothing leaks.",
        named("largest difference of a loss, all runs", lambda data: stats.exact(float(data["alone_error"].max()))),
        below=2e-6,  # losses are rounded to float32
    ),
)  # fmt: skip


def leaks(data: pd.DataFrame) -> Figure:
    """Draw what the leak costs at each distance, by seed."""
    keys, rows = ["variant", "attention", "bos", "seed"], data.set_index("rule")
    columns = {f"loss_{near}": f"distance {near}" for near in NEAR} | {"loss_more": "further away"}
    zero, leak = (rows.loc[rule].set_index(keys)[list(columns)] for rule in (ZERO, LEAK))
    cost = (leak - zero).dropna().rename(columns=columns).reset_index()
    cost["setting"] = cost["variant"] + ", " + cost["attention"]
    reach = 1.1 * float(cost[list(columns.values())].abs().to_numpy().max())
    view = dots(
        "setting", list(columns.values()), panels="bos", xlabel="nats per target that the leak costs", lines=(0.0,),
        xlim=(-reach, reach), log=False,
    )  # fmt: skip
    return view(cost)


RULES = {VANILLA: (ZERO,), K_ONLY: (LEAK, ZERO, OWN), SMEAR_EMBED: (LEAK, ZERO), CONV: (LEAK, ZERO)}
CELLS = [
    *(where(variant, rule) for variant, rules in RULES.items() for rule in rules),
    *(where(variant, rule, OPEN) for variant, rules in RULES.items() for rule in rules if rule != OWN),
    *(where(variant, rule, bos="BOS") for variant in SHIFTS for rule in (LEAK, ZERO)),
]
PACKING = Study(
    name="packing",
    title="What a leak from the document before costs, by the distance from a document's first token",
    key="Dot: a seed. Bar: the median. Leak less zero: right of 0, the leak costs.",
    declared="2026-11-27",
    cells=CELLS,
    smoke=[cell for cell in CELLS if cell["variant"] == SMEAR_EMBED],
    config=config,
    measure=measure,
    seeds=range(5),
    asks=ASKS,
    view=leaks,
    shown=("loss_1", "loss_2", "loss_3", "loss_more", "loss", "alone_1", "alone"),
)
