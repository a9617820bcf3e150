"""Why is vanilla slower: because it has to fuse neighbouring tokens, or because it has to decouple them again?

"The formation of traditional induction heads mechanism requires the fusion of adjacent token information in the
previous layer and the coupling of information into keys and values in the next layer, but fusion is easy and decoupling
information is difficult, we think this may also be one of the reasons why Vanilla attention has a slower learning"
(arXiv 2411.19574, section 3.3). Two layers with one head each are given more and more of this mechanism:

- nothing: layer 0 has to learn to attend to the previous token;
- fused: layer 0 attends to the previous token from the first step. Layer 1 reads both tokens from one residual stream
  and has to learn keys of the previous token and values of the current one;
- keys apart: attention of layer 0 is off. Layer 1's keys are those of the previous token: nothing is fused.

If fusion makes vanilla slow, "fused" is much faster than "nothing". If decoupling does, "keys apart" is much faster
than "fused". Both can be true, or neither. But "fused" also learns the map by which layer 0 writes, and "keys apart"
has no such map. Two more models have fused keys without it. Like "keys apart", they read the current token's values:

- keys concatenated: half of the channels of each key are the previous token's, half the current one's (`key_offset`);
- keys added: every channel is the sum of both tokens' keys over sqrt(2), which no linear map separates.

All have the parameters of "nothing", except clamped weights of the shift. Each tries three learning rates, below those
at which a tuning seed did not learn: .032 for "nothing" and "fused", .064 for "keys apart" with learned positions. At
width 8 a head has 16 channels, so that half of a key can hold a token. There is no weight decay, as in Figure 1b.

Prediction: fusion is difficult with RoPE and easy with learned positions (in the study `robustness`, with four
heads, "fused" takes .126 and .686 of the steps of "nothing"). Decoupling is difficult everywhere (there KV shifting
takes .395 and .311 of the steps of "fused"). Concatenated keys are about as fast as keys apart. Measures and thresholds
were fixed before the runs.
"""

from typing import Any

from ihlab.plots.views import dots
from ihlab.recipes.induction import GIVEN_HEAD, MUCH_FASTER, figure1_run
from ihlab.study.ask import Ask, Cell, claim_id, ratio
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Scale, Study, Tuned, cells, wide
from ihlab.training.clamp import Clamp
from ihlab.training.config import RunConfig

OFF = Clamp(what="pattern", layer=0, value="zero")


def keys(current: float, previous: float) -> tuple[Clamp, ...]:
    """Return the clamps that fix layer 1's keys as a sum of two tokens' keys, and switch attention of layer 0 off."""
    weights = enumerate((current, previous))
    return (OFF, *(Clamp(what="alpha", layer=1, column=column, value=weight) for column, weight in weights))


NOTHING, FUSED, APART = "nothing", "fused", "keys apart"
CONCATENATED, ADDED = "keys concatenated", "keys added"
GIVEN: dict[str, tuple[str, tuple[Clamp, ...]]] = {
    NOTHING: ("vanilla", ()),
    FUSED: ("vanilla", (GIVEN_HEAD,)),
    APART: ("k_shift", keys(0.0, 1.0)),
    CONCATENATED: ("key_offset", (OFF,)),
    ADDED: ("k_shift", keys(0.5**0.5, 0.5**0.5)),
}
"""The attention and the clamps of each model."""
ROPE, LEARNED, NARROW = "width 32, RoPE", "width 32, learned positions", "width 8, learned positions"
SETTINGS: dict[str, dict[str, Any]] = {
    ROPE: {"d_model": 32, "d_head": 32},
    LEARNED: {"d_model": 32, "d_head": 32, "positional": "learned"},
    NARROW: {"d_model": 8, "d_head": 16, "positional": "learned"},
}


def rates(cell: Cell) -> tuple[float, ...]:
    """Return the learning rates of a cell."""
    return (4e-3, 8e-3, 1.6e-2) if cell["given"] in (NOTHING, FUSED) else (8e-3, 1.6e-2, 3.2e-2)


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return Figure 1a's config with one head per layer and the cell's attention and clamps. Runs stop at 90%."""
    run, (attention, clamped) = figure1_run(scale), GIVEN[cell["given"]]
    shape = {"n_layers": 2, "n_heads": 1, "d_mlp": None, "attention": attention, **SETTINGS[cell["setting"]]}
    run = run.replace(
        model=run.model.replace(**shape),
        clamped=clamped,
        weight_decay=0.0,
        schedule="constant",
        compile=False,
        checkpoints=2,
        stop_at_accuracy=ACCURACY,
    )
    return run if scale == "smoke" else run.replace(steps=800, warmup=20, eval_every=5, eval_rows=256)


def ask(name: str, one: str, other: str, setting: str, sentence: str, **fields: Any) -> Ask:
    """Return a question about the steps of two models in a setting."""
    number = ratio({"given": one, "setting": setting}, {"given": other, "setting": setting})
    fields = {"source": "related to section 3.3", **fields}
    return Ask(claim_id(name, setting), sentence, number, setting={"positions": setting}, **fields)


def parts(setting: str) -> tuple[Ask, Ask]:
    """Ask which part is difficult in a setting. The paper's position scheme is RoPE."""
    fields = {"source": "section 3.3", "of_paper": setting == ROPE}
    return (
        ask(
            "fusion_easy", FUSED, NOTHING, setting,
            "Fusion is easy: two vanilla layers do not learn induction much faster if a head that fuses neighbours is "
            "given.",
            above=MUCH_FASTER, statement=19, **fields,
        ),
        ask(
            "decoupling_difficult", APART, FUSED, setting,
            "Decoupling is difficult: induction is learned much faster if keys are those of the previous token than if "
            "layer 1 reads fused neighbours.",
            below=MUCH_FASTER, statement=48, **fields,
        ),
    )  # fmt: skip


def fused_keys(setting: str) -> tuple[Ask, Ask]:
    """Ask whether fused keys are slow, and whether it matters that they can be separated."""
    return (
        ask(
            "concatenated_slower", CONCATENATED, APART, setting,
            "Induction is learned much slower if keys hold the previous and the current token in separate channels "
            "than if they hold the previous token alone.",
            above=1 / MUCH_FASTER,
        ),
        ask(
            "added_slower", ADDED, CONCATENATED, setting,
            "Induction is learned much slower if keys add the previous and the current token than if they hold them in "
            "separate channels.",
            above=1 / MUCH_FASTER,
        ),
    )  # fmt: skip


CELLS = [
    cell
    for cell in cells(given=tuple(GIVEN), setting=tuple(SETTINGS))
    if cell["setting"] != ROPE or cell["given"] not in (CONCATENATED, ADDED)  # key_offset also rotates less
]
FUSION = Study(
    name="fusion",
    title="Two layers that are given a part of induction",
    caption="Dot: a seed. Bar: the median. Each model at its own learning rate.",
    declared="2026-11-27",
    cells=CELLS,
    smoke_cells=[cell for cell in CELLS if cell["setting"] == NARROW],
    config=config,
    tuned=Tuned(rates=rates, smoke=(1e-3, 4e-3)),
    seeds=range(6),
    asks=[
        *(ask for setting in SETTINGS for ask in parts(setting)),
        *(ask for setting in (LEARNED, NARROW) for ask in fused_keys(setting)),
    ],
    view=dots("given", panels="setting"),
    summary_columns=wide("setting", "given"),
)
