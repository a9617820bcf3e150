"""Does Figure 1a's speed-up depend on position encoding, the number of heads, the weight decay or
the learning rate?

Figure 1a compares one layer of KV shifting with two vanilla layers at one position scheme (RoPE),
four heads, one weight decay and one learning rate. This study changes one of them at a time. Each
model is trained at the learning rate of a grid at which it learns fastest.

Two more models test the cause of the speed-up. Two vanilla layers have to learn a previous-token
head first. "Head given" clamps the attention pattern of one head of layer 0 to the previous token,
from the first step on. Any speed-up that remains is not due to the wait for this head. Four vanilla
layers have more heads that can become such a head.

Measures, thresholds, the grid and the seeds were fixed before the runs. The learning rate is
constant throughout.
"""

from typing import Any

from ihlab.plots.views import dots
from ihlab.recipes.induction import DEPTHS, GIVEN, GIVEN_HEAD, KV1, V2, V4, figure1_run
from ihlab.recipes.toy_questions import Kind, asked
from ihlab.study.ask import Ask
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Grid, Study, Tuned, wide
from ihlab.training.config import constant_steps

ROPE, LEARNED, NO_POSITIONS = "RoPE", "learned positions", "no positions"
SETTINGS: dict[str, dict[str, object]] = {
    ROPE: {},
    "RoPE, base 100": {"rotary_base": 100.0},
    "ALiBi": {"positional": "alibi"},
    LEARNED: {"positional": "learned"},
    NO_POSITIONS: {"positional": "none"},
    "RoPE, 2 heads": {"n_heads": 2},
    "RoPE, 1 head": {"n_heads": 1},
    "learned positions, 2 heads": {"positional": "learned", "n_heads": 2},
    "learned positions, 1 head": {"positional": "learned", "n_heads": 1},
    "RoPE, no weight decay": {"weight_decay": 0.0},
    "learned positions, no weight decay": {"positional": "learned", "weight_decay": 0.0},
}
"""Fields that each setting changes. "RoPE" is Figure 1a's model: rotary base 100,000, four heads.
"""

KV_RATES = (8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 0.128, 0.256)
VANILLA_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
"""Learning rates: together the two grids reach from half of Figure 1a's rate to 64 times Figure
1a's rate.

In six settings KV shifting's best rate is the highest of its grid. It then learns within the 100
steps of warm-up, before the rate is reached, so a higher peak rate would only make the warm-up
steeper."""


RUN = figure1_run()
GRID = Grid(
    RUN.replace(
        schedule="constant", steps=constant_steps(RUN), stop_at_accuracy=ACCURACY, checkpoints=2
    ),
    {
        "variant": {
            KV1: DEPTHS[KV1],
            GIVEN: {**DEPTHS[V2], "clamped": (GIVEN_HEAD,)},
            V2: DEPTHS[V2],
            V4: DEPTHS[V4],
        },
        "setting": SETTINGS,
    },
)


def ask(
    name: str, one: str, kind: Kind, other: str, setting: str, sentence: str, **fields: Any
) -> Ask:
    """Return a question about two models in a setting."""
    return asked(one, kind, other, setting, id=name, sentence=sentence, **fields).at(
        positions=setting
    )


def faster(setting: str) -> Ask:
    """Ask whether KV shifting has Figure 1a's speed-up in a setting."""
    return ask(
        "faster",
        KV1,
        "much faster",
        V2,
        setting,
        f"KV shifting attention converges much faster than two-layer transformers ({setting}), each at its own "
        "learning rate.",
        source="an objection to Figure 1a",
        statement=9,
    )


def causes(setting: str) -> tuple[Ask, Ask, Ask]:
    """Ask whether the wait for a previous-token head is the cause of the speed-up."""
    return (
        ask(
            "head_given_helps", GIVEN, "much faster", V2, setting,
            f"Two vanilla layers learn induction much faster if a previous-token head is given ({setting}).",
            source="sections 3.3 and 5, which say the contrary: fusion is easy", statement=19, against=True,
        ),
        ask(
            "faster_than_head_given", KV1, "much faster", GIVEN, setting,
            "KV shifting attention converges much faster than two-layer transformers that are given a previous-token "
            f"head ({setting}).",
            source="related to sections 3.3 and 5: decoupling is difficult", statement=48,
        ),
        ask(
            "four_layers_no_faster", V4, "not faster", V2, setting,
            f"Increasing vanilla to 4 layers does not make the model learn induction faster ({setting}), each at its "
            "own learning rate.",
            source="an objection to Figure 1a", statement=9,
        ),
    )  # fmt: skip


CELLS = [
    cell
    for cell in GRID.cells
    if cell["variant"] in (KV1, V2) or cell["setting"] in (ROPE, LEARNED)
]
ROBUSTNESS = Study(
    name="robustness",
    heading="Which settings change the speed?",
    title="Figure 1a's models under other positions, heads and weight decay",
    caption="Dot: a seed. Bar: the median. Each model at its own learning rate.",
    declared="2026-11-26",
    cells=CELLS,
    smoke_cells=[cell for cell in CELLS if cell["setting"] in (ROPE, NO_POSITIONS)],
    config=GRID,
    stacked=True,
    tuned=Tuned(rates=lambda cell: KV_RATES if cell["variant"] == KV1 else VANILLA_RATES),
    seeds=range(16, 24),  # not used by the first versions of this study and of Figure 1a
    asks=[*map(faster, SETTINGS), *causes(ROPE), *causes(LEARNED)],
    view=dots("setting", colors="variant"),
    summary_columns=wide("setting", "variant"),
)
