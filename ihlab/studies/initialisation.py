"""Do small initial embeddings keep two layers from learning induction, and do they explain KV shifting's gain?

An embedding reads one token, so its fan-in is 1, and Figure 1a initialises it as N(0, 1). Many models use a far smaller
standard deviation (Llama and GPT-2: 0.02). This study varies the standard deviation of the embeddings for one and two
layers of KV shifting and for two vanilla layers. The learning rate and all other weights are Figure 1a's. Runs of one
seed have the same initial embeddings up to that factor.

Runs end as soon as they reach 90% accuracy. They may take twice as many steps as those of Figure 1a. Otherwise, for a
curve that needs half of Figure 1a's steps, a slow-down by more than 2 could not be measured. Measures and thresholds
were fixed before the runs, to test what one seed of other shapes had shown: with embeddings of 0.02, two vanilla layers
learned nothing in 1500 steps at four learning rates, and one layer of KV shifting learned induction in 240.
"""

from typing import Any

import pandas as pd

from ihlab.claims.ask import Ask, Cell, of, ratio
from ihlab.claims.experiment import Scale
from ihlab.claims.induction import DEPTHS, KV1, MUCH_FASTER, V2, induction_run
from ihlab.claims.rates import ACCURACY, steps_by
from ihlab.claims.study import Study, cells
from ihlab.plots.views import dots
from ihlab.training.config import RunConfig

KV2 = "KV shifting, 2 layers"
CURVES = {KV1: DEPTHS[KV1], KV2: {"attention": "kv_shift", "n_layers": 2}, V2: DEPTHS[V2]}
SMALL, UNIT = 0.02, 1.0
"""Standard deviations: Llama's, and Figure 1a's."""
SLOWED = 2.0
"""Ratio of steps, small initial embeddings / N(0, 1), above which a curve is slowed down."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return Figure 1a's run with twice the steps and the cell's standard deviation."""
    run = induction_run(scale)
    model = run.model.replace(**CURVES[cell["curve"]], embed_std=cell["embed_std"])
    return run.replace(model=model, steps=2 * run.steps, stop_at_accuracy=ACCURACY, checkpoints=2)


def constant(data: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the horizon of a "trapezoid": the rate falls in the last fifth of the steps."""
    return data.assign(horizon=data["horizon"] - data["horizon"] // 5)


def at_constant_rate(id: str, sentence: str, one: Cell, other: Cell, **more: Any) -> Ask:
    """Ask for a ratio of steps. Only steps before the learning rate decays count, as in Figure 1a."""
    number = ratio(one, other)
    return Ask(
        id,
        sentence,
        of(constant, number),
        first=number,
        changed="2026-11-24: what is learned while the rate falls does not count in Figure 1a either",
        source="a finding of the lab log (docs/LOG.md)",
        **more,
    )


def slowed(id: str, curve: str, sentence: str, **threshold: Any) -> Ask:
    """Ask whether small initial embeddings slow a curve down."""
    return at_constant_rate(id, sentence, cell(curve, SMALL), cell(curve, UNIT), **threshold)


def faster(id: str, std: float, start: str) -> Ask:
    """Ask whether KV shifting is much faster than two vanilla layers from one start."""
    sentence = f"KV shifting attention converges much faster than two-layer transformers ({start})."
    one, other = cell(KV1, std), cell(V2, std)
    return at_constant_rate(id, sentence, one, other, below=MUCH_FASTER, setting={"embeddings": start})


def cell(curve: str, std: float) -> Cell:
    """Return the cell of a curve and a standard deviation."""
    return {"curve": curve, "embed_std": std}


_dots = dots("embed_std", panels="curve", xlabel="steps to 90% accuracy")

INITIALISATION = Study(
    name="initialisation",
    title="Do small embeddings at the start delay induction?",
    key="Rows: standard deviation of the initial embeddings. Marker: a seed. Never: not before the rate falls.",
    declared="2026-11-22",
    cells=cells(curve=tuple(CURVES), embed_std=(SMALL, 0.125, 0.35, UNIT)),
    smoke=cells(curve=tuple(CURVES), embed_std=(SMALL, UNIT)),
    config=config,
    seeds=range(6),
    stacked=True,
    asks=(
        slowed(
            "small_start_slows_vanilla", V2,
            "Two vanilla layers learn induction several times later, or not at all, if embeddings start small.",
            above=SLOWED,
        ),
        slowed(
            "small_start_spares_kv1", KV1,
            "One layer of KV shifting does not need twice the steps if embeddings start small.", below=SLOWED,
        ),
        slowed("small_start_spares_kv2", KV2, "Nor do two layers of KV shifting.", below=SLOWED),
        faster("faster.normal_start", UNIT, "embeddings that start as N(0, 1)"),
        faster("faster.small_start", SMALL, "embeddings that start small"),
    ),
    view=lambda data: _dots(data.assign(steps_to_90=steps_by(data["steps_to_90"], constant(data)["horizon"]))),
)  # fmt: skip
