"""Does the shift leave a model's state before training as it was?

Section 2.2 starts alpha1 and beta1 in U(0, 1), with alpha2 = 1 - alpha1 and beta2 = 1 - beta1, "to ensure that the
initialization of KV shifting does not affect the initial optimization state". A sum of 1 keeps the mean of keys and
values. Their variance over independent tokens is multiplied by alpha1^2 + alpha2^2, on average 2/3, and with it that of
attention scores and of what heads read. This needs no training and no measurement, so one claim says it exactly. First
it was asked of each of these variances on each data set; all eight said the same. Loss and gradients are not decided by
algebra. Neighbouring tokens of text depend on each other, so the variances are shown for text, too.

Nothing is trained. Fresh models with one seed have the same weights except alpha and beta, and read the same batch. So
each ratio to vanilla is of two models that differ in the shift only. In a control the two weights are divided by their
norm, so their squares sum to 1. Measures and thresholds were fixed before the seeds that they judge. Six other seeds
were looked at before.
"""

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.ask import Ask, Measured, claims_of, named
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import induction_run
from ihlab.claims.labels import KV, VANILLA
from ihlab.claims.real_text import text_run
from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure, printed

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer
    from tasks import Batch

UNIT = "shift with squares that sum to 1"
ARMS = {VANILLA: "vanilla", KV: "kv_shift", UNIT: "kv_frozen_unit"}
SHIFTED = (KV, UNIT)
RUNS = {"induction sequences": induction_run, "text": text_run}
"""The runs whose task and model are measured."""
LAYERS = (1, 2)
"""Numbers of layers. The claims are about models of one layer."""
TOKENS = 2048
"""Tokens per batch."""
SEEDS = {"smoke": 2, "laptop": 64}

MEASURED = {
    "loss": "loss",
    "keys": "variance of keys",
    "values": "variance of values",
    "scores": "variance of attention scores",
    "outputs": "variance of the heads' outputs",
    "key_gradient": "gradient norm of W_K",
    "value_gradient": "gradient norm of W_V",
}
"""Columns of the table, and what they hold. Variances and gradients are of the last layer."""
SAME = 1.1
"""Largest factor between two numbers that count as the same."""
ASKED = ("loss", "key_gradient", "value_gradient")
"""What claims are about. Algebra decides the others."""
EXPECTED = 2 / 3
"""Mean of alpha1^2 + (1 - alpha1)^2 over alpha1 in U(0, 1)."""
EXACT = Ask(
    "same_variance",
    "KV shifting starts with vanilla's variance of keys and values.",
    lambda _: Measured("factor between E[U^2 + (1 - U)^2] and 1, independent tokens", stats.exact(1 / EXPECTED), 0),
    below=SAME,
    source="section 2.2; no measurement, added after the runs in place of eight",
    of_paper=True,
    statement=5,
    declared="2026-11-27",
)


def same(arm: str, kind: str, column: str) -> Ask:
    """Ask whether a number of an arm is vanilla's, with one layer."""
    paper = arm == KV
    what = "KV shifting starts" if paper else "Weights whose squares sum to 1 start"
    measure = "factor between the mean ratio to vanilla and 1; one layer, models paired by seed"
    stem = column if "gradient" not in column else f"gradient_{column[0]}"

    def factor(data: pd.DataFrame) -> stats.Estimate:
        return stats.factor(stats.mean(ratios(data, arm, kind, 1)[column].tolist()))

    return Ask(
        f"{'' if paper else 'unit_norm_'}same_{stem}.{kind.replace(' ', '_')}",
        f"{what} with vanilla's {MEASURED[column]} ({kind}).",
        named(measure, factor),
        below=SAME,
        source="section 2.2" if paper else "beside section 2.2",
        of_paper=paper,
        setting={"data": kind},
        statement=5 if paper else None,
    )


class InitialState:
    """Loss, variances and gradients of fresh models, relative to vanilla models with the same weights."""

    name, scales = "initial_state", ("smoke", "laptop")

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Measure every model. Return one row per model: data, layers, arm, seed, and the columns of `MEASURED`."""
        from ihlab.measure.batches import draw
        from ihlab.model.transformer import Transformer

        rows = []
        for data, seed in product(RUNS, range(SEEDS[scale])):
            run = RUNS[data](scale)
            batch = draw(run.task, seed, "train", 0, TOKENS // run.task.length)
            for layers, (arm, attention) in product(LAYERS, ARMS.items()):
                model = Transformer(run.model.replace(attention=attention, n_layers=layers), seed)
                rows.append({"data": data, "layers": layers, "arm": arm, "seed": seed, **state(model, batch)})
        return pd.DataFrame(rows).round(6)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether loss and gradients are vanilla's, for the paper's weights and for the control."""
        asks = [same(arm, kind, column) for arm, kind, column in product(SHIFTED, RUNS, ASKED)]
        return claims_of([EXACT, *asks], data, "2026-11-26")

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the mean ratio to vanilla of every measured number of one layer."""
        means = {(arm, kind): ratios(data, arm, kind, 1).mean() for arm, kind in product(SHIFTED, RUNS)}
        table = pd.DataFrame(means).rename(index=MEASURED).round(2)
        table.columns = pd.Index([f"{arm}, {kind}" for arm, kind in means])
        return table.rename_axis("ratio to vanilla").reset_index()

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the mean ratio of every measured number, with its interval, one panel per data set."""
        figure = new_figure(PAGE, 4.8)
        panels = figure.subplots(1, len(RUNS), sharey=True)
        for axes, kind in zip(panels, RUNS, strict=True):
            axes.axvspan(1 / SAME, SAME, color="0.9", lw=0, zorder=0)
            axes.axvline(EXPECTED, color="#777777", lw=1, ls="--")
            for number, (arm, layers) in enumerate(product(SHIFTED, LAYERS)):
                color, marker = ((BLUE, "o"), (ORANGE, "s"))[SHIFTED.index(arm)]
                found = ratios(data, arm, kind, layers)
                estimates = [stats.mean(found[column].tolist()) for column in MEASURED]
                bars = [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]
                axes.errorbar(
                    [e.value for e in estimates], np.arange(len(MEASURED)) + 0.16 * (number - 1.5),
                    xerr=np.nan_to_num(bars), fmt=marker, color=color, mfc=color if layers == 1 else "white", ms=5,
                    lw=1, label=f"{arm}, {layers} layer{'s' * (layers > 1)}",
                )  # fmt: skip
            axes.set_title(kind, fontsize=10)
            axes.set_xlabel("ratio to vanilla with the same weights")
        panels[0].set_yticks(range(len(MEASURED)), MEASURED.values())
        panels[0].invert_yaxis()
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            f"Does the shift leave the state before training as it was? ({scale} scale)\n"
            f"Means and intervals over {data['seed'].nunique()} seeds. Grey: within a factor of {SAME}. Dashed: 2/3, "
            "the variance of independent tokens.",
            fontsize=11,
        )
        return figure


def state(model: "Transformer", batch: "Batch") -> dict[str, float]:
    """Return the columns of `MEASURED` for a model on a batch.

    - loss: cross-entropy in nats, mean over scored positions;
    - keys, values, outputs: variance over all tokens of the batch, mean over heads and their channels, of keys and
      values after the shift and before the rotation, and of what each head reads (z = pattern @ values);
    - scores: variance over all visible pairs of query and key, mean over heads;
    - key_gradient, value_gradient: norm of the loss's gradient by W_K and by W_V.
    """
    import torch
    from torch.nn.functional import cross_entropy

    from tasks import IGNORE

    attention, name = model.layers[-1].attn, f"blocks.{len(model.layers) - 1}.attn.hook_"
    logits, cache = model.run_with_cache(
        torch.from_numpy(batch.inputs), names_filter=[name + part for part in ("k", "v", "attn_scores", "z")]
    )
    targets = torch.from_numpy(batch.targets).flatten()
    loss = cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORE)
    gradients = torch.autograd.grad(loss, [attention.k_proj.weight, attention.v_proj.weight])
    keys, values, outputs = (cache[name + part].flatten(0, 1).var(dim=0).mean().item() for part in ("k", "v", "z"))
    scores = cache[name + "attn_scores"]
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return {
        "loss": loss.item(),
        "keys": keys,
        "values": values,
        "scores": scores[..., visible].var(dim=(0, 2)).mean().item(),
        "outputs": outputs,
        "key_gradient": gradients[0].norm().item(),
        "value_gradient": gradients[1].norm().item(),
    }


def ratios(data: pd.DataFrame, arm: str, kind: str, layers: int) -> pd.DataFrame:
    """Return an arm's numbers relative to vanilla's, one row per seed."""
    models = data[(data["data"] == kind) & (data["layers"] == layers)].set_index("seed")
    of, vanilla = (models.loc[models["arm"] == name, list(MEASURED)] for name in (arm, VANILLA))
    return of / vanilla
