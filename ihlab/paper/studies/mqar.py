"""MQAR, the control for induction: keys and values are disjoint, and a value comes right after its key.

There are two stages. Learning rates are chosen on tuning seeds. Then each curve is trained at its own rate, with other
seeds. One vanilla layer never learns, so it uses the rate of two layers. The setting is the smallest of Zoology (Arora
et al. 2023, arXiv 2312.04927, Figure 2), with a vocabulary of 512 instead of 8192.
"""

from ihlab.model.config import ModelConfig
from ihlab.plots.views import curves
from ihlab.recipes.induction import KV1, V1, V2
from ihlab.study.ask import Ask, Cell, ratio
from ihlab.study.learning_curves import evaluations
from ihlab.study.study import Scale, Study, Tuned, medians
from ihlab.training.config import RunConfig
from tasks import MQARTask

CURVES: dict[str, dict[str, object]] = {KV1: {"attention": "kv_shift"}, V1: {}, V2: {"n_layers": 2}}
SETTING = "64 positions, 4 pairs"
GOAL = 0.9
"""Target accuracy at the first query of each sequence. Steps are counted up to it, and the run ends there."""


def cell(curve: str) -> Cell:
    """Return the cell of a curve."""
    return {"curve": f"{curve}, {SETTING}"}


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a curve, at Zoology's size."""
    smoke = scale == "smoke"
    task = MQARTask(vocab_size=32, length=16, pairs=2) if smoke else MQARTask(vocab_size=512, length=64, pairs=4)
    model = ModelConfig(n_layers=1, d_model=16 if smoke else 64, n_heads=1, d_vocab=task.vocab_size, n_ctx=task.length)
    model = model.replace(**CURVES[cell["curve"].removesuffix(f", {SETTING}")])
    run = RunConfig(
        task=task, model=model, steps=2500, batch_size=64, eval_rows=512, checkpoints=2, stop_at_accuracy=GOAL
    )
    return run.replace(steps=20, batch_size=8, warmup=5, eval_rows=32) if smoke else run


def sooner(id: str, other: str, words: str) -> Ask:
    """Ask whether one layer of KV shifting needs fewer steps. The paper only says that the tasks differ."""
    return Ask(
        f"sooner_than.{id}",
        f"With disjoint, adjacent keys and values one layer of KV shifting learns sooner than {words} ({SETTING}).",
        ratio(cell(KV1), cell(other)),
        below=1.0,
        setting={"baseline": words},
        source="related to section 3.2, which says how the tasks differ",
    )


MQAR = Study(
    name="mqar",
    title="How fast do models learn multi-query associative recall?",
    caption=f"Line: median of the seeds. Band: all seeds. A run ends at an accuracy of {GOAL:g}.",
    declared="2026-11-22",
    cells=[cell(curve) for curve in CURVES],
    config=config,
    seeds=range(5),
    tuned=Tuned(
        rates=(1.5e-3, 3e-3, 6e-3, 1.2e-2),
        smoke=(3e-3, 6e-3),
        smoke_seeds=2,
        rate_of=lambda one: cell(V2) if one == cell(V1) else one,
    ),
    curve=evaluations,
    asks=(sooner("vanilla1", V1, "one vanilla layer"), sooner("vanilla2", V2, "two vanilla layers")),
    summary_columns=lambda data: medians(data, ["curve", "lr"], ["steps_to_90"]),
    view=curves("step", "accuracy_first", colors="curve", ylabel="accuracy at the first query", ylim=(-0.02, 1.02)),
)
