"""Does the shift reverse the order "bigrams first, then induction"?

Bietti et al. 2023 (arXiv 2306.00802) train two vanilla layers on bigrams with triggers: the global table is learned
first, then induction. With the shift, induction needs one layer and fewer steps. Is it then learned first, at least
if triggers are frequent? `tasks.TriggerTask` separates the two kinds of knowledge: the table answers at the first
occurrence of a token, and only induction answers at a repeated trigger. An accuracy of one half requires the respective
knowledge (`tests/tasks/test_trigger.py` scores models that lack it).

All models have learned positions, with which two vanilla layers learn induction fastest (`ihlab.studies.robustness`),
and one learning rate. Measures and thresholds were fixed before the runs. The setting was chosen on another seed.
"""

import numpy as np
import pandas as pd

from ihlab.claims import stats
from ihlab.claims.ask import Ask, Cell, Measured, Number, pick
from ihlab.claims.experiment import Scale
from ihlab.claims.induction import DEPTHS, KV1, V2
from ihlab.claims.learning_curves import crossings
from ihlab.claims.study import Run, Study, cells
from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.training.config import RunConfig
from tasks import TriggerTask
from tasks.trigger import GLOBAL, TRIGGER

KV2 = "KV shifting, 2 layers"
MODELS = {V2: DEPTHS[V2], KV1: DEPTHS[KV1], KV2: {"attention": "kv_shift", "n_layers": 2}}
SHORT = {V2: "vanilla2", KV1: "kv1", KV2: "kv2"}
STEPS = {V2: 1200, KV1: 600, KV2: 600}
TRIGGERS = (4, 11, 21)
"""Triggers per sequence, of 32 tokens. With more than 21, the table is not the best answer at a first occurrence."""
HALF = 0.5
"""Accuracy at which half of the table, or of induction, is learned."""
TABLE, INDUCTION = f"accuracy_source_{GLOBAL}", f"accuracy_source_{TRIGGER}"


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a model trained with a number of triggers."""
    task, curve = TriggerTask(triggers=cell["triggers"]), cell["curve"]
    model = ModelConfig(
        n_layers=1, d_model=32, n_heads=4, d_vocab=task.vocab_size, n_ctx=task.length, positional="learned"
    )
    return RunConfig(
        task=task, model=model.replace(**MODELS[curve]), steps=12 if scale == "smoke" else STEPS[curve], batch_size=32,
        lr=8e-3, compile=scale != "smoke", eval_every=5, eval_rows=256, checkpoints=2,
    )  # fmt: skip


def measure(run: Run) -> pd.DataFrame:
    """Return the accuracies of the table and of induction at every evaluation."""
    return run.metrics[["step", TABLE, INDUCTION]]


def frequency(triggers: int) -> float:
    """Return the fraction of positions that hold a trigger (see `TriggerTask`)."""
    k = triggers / TriggerTask().vocab_size
    return k / (1 + k)


def waits(data: pd.DataFrame, curve: str, triggers: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return every seed's steps to half of the bigrams and to half of induction (inf: never), and all steps."""
    rows = pick(data, {"curve": curve, "triggers": triggers})
    bigrams, induction = (np.array(crossings(rows, curve, HALF, column)) for column in (TABLE, INDUCTION))
    return bigrams, induction, float(rows["horizon"].min())


def later(curve: str, triggers: int) -> Number:
    """Return the ratio of the two waits."""

    def number(data: pd.DataFrame) -> Measured:
        bigrams, induction, horizon = waits(data, curve, triggers)
        if np.isinf(bigrams).any():
            return Measured("", None, len(bigrams), "Some seed does not learn half of the bigrams.")
        measure = f"steps to half of induction / steps to half of the bigrams (not there: {horizon:.0f})"
        ratio = stats.ratio_of_times(induction.tolist(), bigrams.tolist(), horizon)
        return Measured(measure, ratio, len(bigrams))

    return number


def reversed_order(curve: str, triggers: int) -> Ask:
    """Ask for the order: bigrams first in vanilla layers, and induction first with the shift."""
    vanilla, share = curve == V2, f"{frequency(triggers):.0%}"
    first = "bigrams before induction" if vanilla else "induction before bigrams, the reverse of vanilla,"
    return Ask(
        f"{'bigrams' if vanilla else 'induction'}_first.{SHORT[curve]}.{share[:-1]}",
        f"{curve} learns {first} where {share} of the positions hold a trigger.",
        later(curve, triggers),
        above=1.0 if vanilla else None,
        below=None if vanilla else 1.0,
        setting={"model": curve, "triggers": share},
        source="the order of Bietti et al. 2023 (arXiv 2306.00802)"
        if vanilla
        else "a guess of our own: no paper says so",
    )


def ratios(data: pd.DataFrame) -> pd.DataFrame:
    """Return the ratio of the two waits of every seed. A wait that never ended counts as all steps."""
    rows = []
    for curve, triggers in dict.fromkeys(zip(data["curve"], data["triggers"], strict=True)):
        bigrams, induction, horizon = waits(data, curve, triggers)
        ratio = pd.DataFrame({"ratio": np.minimum(induction, horizon) / bigrams, "never": np.isinf(induction)})
        rows.append(ratio.assign(curve=curve, triggers=f"{frequency(triggers):.0%}", seed=range(len(ratio))))
    return pd.concat(rows)


def medians(data: pd.DataFrame) -> pd.DataFrame:
    """Return the median ratio by model and frequency, and how many seeds never learn induction."""
    table = ratios(data).groupby(["triggers", "curve"], sort=False).agg({"ratio": "median", "never": "sum"})
    return table.rename(columns={"ratio": "steps to induction / steps to bigrams"}).round(1).reset_index()


_dots = dots("triggers", "ratio", colors="curve", log=True, lines=(1,), xlabel="steps to induction / steps to bigrams")

ORDER = Study(
    name="order",
    title="How much later than bigrams is induction learned? Above 1: bigrams first.",
    key="Rows: positions with a trigger. Marker: a seed. No induction (vanilla at 11% and 26%): at least this.",
    declared="2026-11-26",
    cells=cells(triggers=TRIGGERS, curve=tuple(MODELS)),
    smoke=cells(triggers=(4, 21), curve=tuple(MODELS)),
    config=config,
    measure=measure,
    asks=[reversed_order(curve, triggers) for curve in MODELS for triggers in TRIGGERS],
    shown=medians,
    view=lambda data: _dots(ratios(data)),
)
