"""Does the shift reverse the order "bigrams first, then induction"?

Bietti et al. 2023 (arXiv 2306.00802) train two vanilla layers on bigrams with triggers: the global table is learned
first, then induction. With the shift, induction needs one layer and fewer steps. Is it then learned first, at least
if triggers are frequent? `tasks.TriggerTask` separates the two kinds of knowledge: the table answers at the first
occurrence of a token, and only induction answers at a repeated trigger. An accuracy of one half requires the respective
knowledge (`tests/tasks/test_trigger.py` scores models that lack it).

All models have learned positions, with which two vanilla layers learn induction fastest (`ihlab.studies.robustness`),
and one learning rate. Measures and thresholds were fixed before the runs. The setting was chosen on another seed.
"""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, KV1, LINES, V2
from ihlab.claims.learning_curves import crossings, plan
from ihlab.model.config import ModelConfig
from ihlab.plots.curves import Line
from ihlab.plots.style import PAGE, SKY, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import TriggerTask
from tasks.trigger import GLOBAL, TRIGGER

KV2 = "KV shifting, 2 layers"
MODELS = {V2: DEPTHS[V2], KV1: DEPTHS[KV1], KV2: {"attention": "kv_shift", "n_layers": 2}}
STYLES = {V2: LINES[V2], KV1: LINES[KV1], KV2: Line(SKY, "-.")}
TRIGGERS = {"smoke": (4, 21), "laptop": (4, 11, 21), "gpu": (4, 11, 21), "paper": (4, 11, 21)}
"""Triggers per sequence, of 32 tokens. With more than 21, the table is not the best answer at a first occurrence."""
SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}
STEPS = {V2: 1200, KV1: 600, KV2: 600}
HALF = 0.5
"""Accuracy at which half of the table, or of induction, is learned."""
TABLE, INDUCTION = f"accuracy_source_{GLOBAL}", f"accuracy_source_{TRIGGER}"


class Order:
    """Steps to induction against steps to the bigrams, by model and trigger frequency."""

    name = "order"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every model with every number of triggers, all seeds."""
        planned = []
        for triggers in TRIGGERS[scale]:
            for curve, changes in MODELS.items():
                task = TriggerTask(triggers=triggers)
                model = ModelConfig(
                    n_layers=1, d_model=32, n_heads=4, d_vocab=task.vocab_size, n_ctx=task.length, positional="learned"
                )
                run = RunConfig(
                    task=task, model=model, steps=12 if scale == "smoke" else STEPS[curve], batch_size=32, lr=8e-3,
                    compile=scale != "smoke", eval_every=5, eval_rows=256, checkpoints=2,
                )  # fmt: skip
                planned += plan(self.name, run, {label(curve, triggers): changes}, SEEDS[scale])
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per evaluation: curve, model, triggers, seed, horizon, step, and the two accuracies."""
        return pd.concat([_rows(curve, run.config, run.metrics) for curve, run in trained], ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the order in every model at every number of triggers."""
        return [_claim(data, curve, triggers) for curve in MODELS for triggers in TRIGGERS[scale]]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the ratio of the two waits of every seed against the fraction of triggers."""
        figure = new_figure(PAGE, 4.4)
        axes = figure.subplots()
        for number, (curve, style) in enumerate(STYLES.items()):
            middles = []
            for place, triggers in enumerate(TRIGGERS[scale]):
                bigrams, induction, horizon = waits(data, curve, triggers)
                ratio, never = np.minimum(induction, horizon) / bigrams, np.isinf(induction)
                x = place + 0.24 * (number - 1) + np.linspace(-0.07, 0.07, len(ratio))
                for shown, marker in ((~never, "osD"[number]), (never, "^")):
                    axes.plot(x[shown], ratio[shown], marker, color=style.color, mfc="white", ms=5, zorder=3)
                middles.append((place + 0.24 * (number - 1), float(np.median(ratio))))
            axes.plot(*zip(*middles, strict=True), style.dashes, color=style.color, label=curve, zorder=2)
        axes.axhline(1, color="#777777", linewidth=1)
        axes.set(yscale="log", ylabel="steps to induction / steps to bigrams", xlabel="positions that hold a trigger")
        axes.set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1: together", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.set_xticks(range(len(TRIGGERS[scale])), [f"{frequency(n):.0%}" for n in TRIGGERS[scale]])
        axes.set_ylim(0.45, 75)
        figure.legend(loc="outside lower center", ncols=len(STYLES))
        figure.suptitle(
            f"How much later than bigrams is induction learned? Above 1: bigrams first.\n"
            f"Marker: one of {data['seed'].nunique()} seeds. Line: median. Triangle: no induction, so at least this.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the median ratio of the two waits for every model and frequency."""
        told = []
        for curve in MODELS:
            found = []
            for triggers in TRIGGERS[scale]:
                bigrams, induction, horizon = waits(data, curve, triggers)
                bound = "at least " if np.isinf(induction).sum() * 2 > len(induction) else ""
                found.append(f"{bound}{np.median(np.minimum(induction, horizon) / bigrams):.2g}")
            told.append(f"{', '.join(found)} ({curve})")
        shares = ", ".join(f"{frequency(triggers):.0%}" for triggers in TRIGGERS[scale])
        return (
            "Half of induction is learned after this many times the steps of half of the bigrams, median of "
            f"{data['seed'].nunique()} seeds, where {shares} of the positions hold a trigger: {'; '.join(told)}."
        )


def label(curve: str, triggers: int) -> str:
    """Return the name of a model trained with this many triggers."""
    return f"{curve}, {triggers} triggers"


def frequency(triggers: int) -> float:
    """Return the fraction of positions that hold a trigger (see `TriggerTask`)."""
    k = triggers / TriggerTask().vocab_size
    return k / (1 + k)


def waits(data: pd.DataFrame, curve: str, triggers: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return every seed's steps to half of the bigrams and to half of induction (inf: never), and all steps."""
    of = data.assign(curve=[label(*pair) for pair in zip(data["curve"], data["triggers"], strict=True)])
    bigrams, induction = (np.array(crossings(of, label(curve, triggers), HALF, x)) for x in (TABLE, INDUCTION))
    return bigrams, induction, float(of.loc[of["curve"] == label(curve, triggers), "horizon"].min())


def _rows(curve: str, config: RunConfig, metrics: pd.DataFrame) -> pd.DataFrame:
    task = config.task
    assert isinstance(task, TriggerTask)
    facts = {"curve": curve.rpartition(",")[0], "triggers": task.triggers, "seed": config.seed, "horizon": config.steps}
    table = metrics[["step", TABLE, INDUCTION]].round(5)
    return pd.concat([pd.DataFrame(facts, index=table.index), table], axis=1)


def _claim(data: pd.DataFrame, curve: str, triggers: int) -> Claim:
    bigrams, induction, horizon = waits(data, curve, triggers)
    first, side = ("bigrams before induction", "above") if curve == V2 else ("induction before bigrams", "below")
    claim = partial(
        Claim,
        source="the order of Bietti et al. 2023 (arXiv 2306.00802), and whether the shift reverses it",
        sentence=f"{curve} learns {first} where {frequency(triggers):.0%} of the positions hold a trigger.",
        of_paper=False,
        declared="2026-11-26",
        seeds=len(bigrams),
    )
    if np.isinf(bigrams).any():
        return claim(why="Some seed does not learn half of the bigrams.")
    return claim(
        measure=f"steps to half of induction / steps to half of the bigrams (not there: {horizon:.0f})",
        estimate=stats.ratio_of_times(induction.tolist(), bigrams.tolist(), horizon),
        threshold=1.0,
        right_side=side,  # type: ignore[arg-type]
    )
