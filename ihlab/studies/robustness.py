"""Does Figure 1a's speed-up depend on the positions, the number of heads, the weight decay or the learning rate?

Figure 1a compares one layer of KV shifting with two vanilla layers at one position scheme (RoPE), four heads, one
weight decay and one learning rate. This study changes one of them at a time. Each model is trained at the learning
rate of a grid at which it learns fastest.

Two more models test the cause of the speed-up. Two vanilla layers have to learn a previous-token head first. "Head
given" clamps the attention pattern of one head of layer 0 to the previous token, from the first step on. Any speed-up
that remains is not due to the wait for this head. Four vanilla layers have more heads that can become one.

Measures, thresholds, the grid and the seeds were fixed before the runs. The learning rate is constant throughout.
"""

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims.comparison import RUN, Cell, Comparison, Question, ratio_text, steps
from ihlab.claims.experiment import Scale
from ihlab.claims.induction import DEPTHS, GIVEN, GIVEN_HEAD, KV1, LINES, V2, V4, figure1_run
from ihlab.claims.rates import ACCURACY, count_in_words
from ihlab.plots.steps import steps_by_model
from ihlab.training.config import RunConfig, constant_steps

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
    "RoPE, no weight decay": {},
    "learned positions, no weight decay": {"positional": "learned"},
}
"""Fields of the model that each setting changes. "RoPE" is Figure 1a's model: rotary base 100,000, four heads."""
NO_DECAY = ("RoPE, no weight decay", "learned positions, no weight decay")
SMOKE_SETTINGS = (ROPE, NO_POSITIONS)

KV_GRID, VANILLA_GRID, SMOKE_GRID = (2, 4, 8, 16, 32, 64), (0.5, 1, 2, 4, 8, 16), (1, 4)
"""Learning rates that are tried, as multiples of Figure 1a's.

In six settings KV shifting's best rate is the highest of its grid. It then learns within the 100 steps of warm-up,
before the rate is reached, so a higher peak rate would only make the warm-up steeper."""
SEEDS = range(16, 24)
"""New seeds, not used by the first versions of this study and of Figure 1a."""

_OWN_RATES = "each at its own learning rate"
_QUESTIONS = (
    *(
        Question(
            setting, KV1, "much faster", V2,
            f"KV shifting attention converges much faster than two-layer transformers ({setting}), {_OWN_RATES}.",
            "an objection to Figure 1a",
        )
        for setting in SETTINGS
    ),
    *(
        question
        for setting in (ROPE, LEARNED)
        for question in (
            Question(
                setting, GIVEN, "much faster", V2,
                f"Two vanilla layers learn induction much faster if a previous-token head is given ({setting}).",
                "beside Figure 1a",
            ),
            Question(
                setting, KV1, "much faster", GIVEN,
                "KV shifting attention converges much faster than two-layer transformers that are given a "
                f"previous-token head ({setting}).",
                "beside Figure 1a",
            ),
            Question(
                setting, V4, "not faster", V2,
                f"Increasing vanilla to 4 layers does not make the model learn induction faster ({setting}), "
                f"{_OWN_RATES}.",
                "an objection to Figure 1a",
            ),
        )
    ),
)  # fmt: skip


class Robustness(Comparison):
    """Steps to 90% accuracy of one layer of KV shifting and of vanilla layers, under other positions and settings."""

    def __init__(self) -> None:
        super().__init__(
            name="robustness",
            title="Figure 1a's models under other positions, heads and weight decay",
            variants=(KV1, GIVEN, V2, V4),
            settings=tuple(SETTINGS),
            questions=_QUESTIONS,
            declared="2026-11-26",
            seeds=SEEDS,
        )

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every model in every setting in which a question names it."""
        settings = SMOKE_SETTINGS if scale == "smoke" else self.settings
        asked = {(model, q.setting) for q in self.questions for model in (q.one, q.other)}
        return [(model, setting) for setting in settings for model in self.variants if (model, setting) in asked]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return Figure 1a's config with the cell's changes and a constant learning rate. It stops at 90%."""
        (model, setting), run = cell, figure1_run(scale)
        given = model == GIVEN
        return run.replace(
            model=run.model.replace(**SETTINGS[setting], **DEPTHS[V2 if given else model]),
            clamped=(GIVEN_HEAD,) if given else (),
            weight_decay=0.0 if setting in NO_DECAY else run.weight_decay,
            schedule="constant", steps=constant_steps(run), stop_at_accuracy=ACCURACY, checkpoints=2,
        )  # fmt: skip

    def grid(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the learning rates that are tried. KV shifting's are higher, because its best rates are."""
        factors = SMOKE_GRID if scale == "smoke" else KV_GRID if cell[0] == KV1 else VANILLA_GRID
        return tuple(factor * figure1_run(scale).lr for factor in factors)

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's steps to 90%, one row per setting."""
        title = f"Steps to 90% accuracy, each model at its own learning rate ({scale} scale)"
        return steps_by_model(data[data["kind"] == RUN], self.settings, LINES, title)

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the ratio of the steps in every setting."""
        shown = [setting for setting in self.settings if setting in set(data["setting"])]
        ratios = [f"{ratio_text(data, (KV1, setting), (V2, setting))} ({setting})" for setting in shown]
        given = [
            f"{ratio_text(data, (KV1, setting), (GIVEN, setting))} ({setting})"
            for setting in (ROPE, LEARNED)
            if setting in shown
        ]
        kv, vanilla = (count_in_words(steps(data, (model, NO_POSITIONS))) for model in (KV1, V2))
        return (
            "Steps to 90% accuracy of one layer of KV shifting divided by those of two vanilla layers, each at its own "
            f"learning rate: {', '.join(ratios)}. Divided by those of two vanilla layers that are given a "
            f"previous-token head: {', '.join(given)}. Without positions {kv} seeds of KV shifting and {vanilla} of "
            "vanilla learn induction."
        )
