"""Figure 9: does KV shifting help or hurt if the answer is in the weights and not in the sequence?"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ihlab.model.config import ModelConfig
from ihlab.plots.curves import Line, learning_curves
from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure, printed
from ihlab.recipes.labels import KV, VANILLA
from ihlab.study import stats
from ihlab.study.ask import Ask, Measured, Number, claims_of, named, of, ratio
from ihlab.study.claim import Claim, slug
from ihlab.study.experiment import Planned, Scale, Trained
from ihlab.study.learning_curves import EVAL_GROWTH, crossings, final, learning_curve_table, plan, steps_per_run
from ihlab.study.rates import ACCURACY
from ihlab.training.config import RunConfig
from tasks import NGramTask

LINES = {KV: Line(BLUE), VANILLA: Line(ORANGE, "--")}

# The paper gives sizes only as non-embedding parameters and layers: 50M with 4, 0.4M with 2, 0.8K with 1. With d_mlp =
# 8/3 d_model these are widths 1024, 128 and 8.
SIZES = {"0.8K": (1, 8, 1), "0.4M": (2, 128, 4), "50M": (4, 1024, 8)}
"""Layers, d_model, heads."""

LAPTOP_SIZES = {name: SIZES[name] for name in ("0.8K", "0.4M")}
SMOKE_SIZES = {"0.8K": (1, 8, 1), "small": (2, 16, 2)}
SMALLEST = "0.8K"

LAPTOP_STEPS = {"0.8K": 1500, "0.4M": 300}
LAPTOP_RATES = {"0.8K": 1.6e-2, "0.4M": 4e-3}
"""Learning rate at which vanilla reaches the highest final accuracy on tuning seeds, by size."""
SEEDS = {"smoke": 2, "laptop": 6, "gpu": 8, "paper": 5}
"""Number of seeds at the larger sizes. Any six of the first eight seeds gave the same decisions; five did not."""
SMALLEST_SEEDS = {"smoke": 2, "laptop": 16, "gpu": 16, "paper": 16}
"""Number of seeds at the smallest size, where some runs learn and some do not."""

MARGIN = 0.05
"""Equivalence margin of accuracy, fixed before the runs: half of Figure 1a's `NEAR_CHANCE`."""
SOONER = 0.8
"""Ratio of steps below which a model learns sooner: 1 / 1.25, as in the comparisons of variants."""
CHANGED = (
    "2026-11-24: evaluations are ten steps apart, a sixth of the compared times, and a ratio above .8 may still mean "
    "sooner"
)
DECLARED = "2026-11-22"


def sizes(scale: Scale) -> dict[str, tuple[int, int, int]]:
    """Return the models of a scale by their names in the figure."""
    return {"smoke": SMOKE_SIZES, "laptop": LAPTOP_SIZES, "gpu": SIZES, "paper": SIZES}[scale]


def ngram_run(scale: Scale, size: str) -> RunConfig:
    """Return the vanilla run of a size. The paper gives the table of 200; batch, length, vocabulary, steps are ours."""
    task = NGramTask(vocab_size=16, length=12, table_size=20) if scale == "smoke" else NGramTask()
    model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=task.vocab_size, n_ctx=task.length)
    run = RunConfig(task=task, model=model, steps=300, batch_size=32, lr=1.6e-2, eval_rows=256, checkpoints=2)
    if scale == "smoke":
        return run.replace(steps=20, batch_size=8, warmup=5, eval_rows=32)
    if scale == "laptop":
        rate, steps = LAPTOP_RATES[size], LAPTOP_STEPS[size]
        # The larger two have learned by step 100. Later evaluations are as sparse as in Figure 1.
        growth = run.eval_growth if size == SMALLEST else EVAL_GROWTH
        return run.replace(steps=steps, lr=rate, compile=True, eval_rows=128, eval_growth=growth)
    return run.replace(steps=2000, batch_size=256, lr=1e-3, precision="bf16", compile=True)


class Figure9:
    """Accuracy on the third token of each 3-gram against training steps, at three sizes."""

    name = "figure9"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan vanilla and KV shifting at every size; the smallest models are trained stacked."""
        planned = []
        for size, (n_layers, d_model, n_heads) in sizes(scale).items():
            shape: dict[str, object] = {"n_layers": n_layers, "d_model": d_model, "n_heads": n_heads}
            curves = {f"{KV}, {size}": {**shape, "attention": "kv_shift"}, f"{VANILLA}, {size}": shape}
            seeds = SMALLEST_SEEDS if size == SMALLEST else SEEDS
            planned += plan(self.name, ngram_run(scale, size), curves, seeds[scale], stacked=size == SMALLEST)
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather every evaluation of every run."""
        return learning_curve_table(trained)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge Appendix E.3: KV shifting neither enhances nor weakens the learning of 3-grams.

        For equivalence the whole interval must lie inside the margin. The tests use ranks, because runs of the
        smallest size are bimodal. Both larger sizes end near 1 with either attention, so only their steps to 90% can
        tell the two apart. About half of the variance of their final differences is noise: retraining the same seeds
        with different rounding shows it.
        """
        asks = [_equal(size, measure) for size in sizes(scale) for measure in MEASURES]
        if "50M" not in sizes(scale):
            number = Measured("", None, 0, "No model of this scale has as many parameters.")
            asks.append(_no_effect("50M", "", lambda _: number))
        asks += [_sooner(size, scale) for size in sizes(scale)]
        return claims_of(asks, data, DECLARED)

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the median final accuracies at each size."""
        rows = [
            (size, *(f"{np.median(final(data, f'{arm}, {size}', 'accuracy')):.3f}" for arm in (KV, VANILLA)))
            for size in sizes(scale)
        ]
        return pd.DataFrame(rows, columns=["parameters", KV, VANILLA])

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw a panel for each size."""
        names = sizes(scale)
        figure = new_figure(PAGE, 4.0)
        for panel, size in zip(figure.subplots(1, len(names), sharey=True), names, strict=True):
            runs = data[data["curve"].str.endswith(f", {size}")]
            learning_curves(panel, runs, "step", "accuracy", {f"{arm}, {size}": line for arm, line in LINES.items()})
            n_params, n_seeds = runs["n_params"].min(), runs["seed"].nunique()
            panel.set_title(f"{size}\n{n_params:,} parameters, {n_seeds} seeds", fontsize=10)
            panel.set(xlabel="training step", ylim=(-0.02, 1.02))
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.label_outer()
        figure.axes[0].set_ylabel("accuracy on $x_3$")
        figure.legend(figure.axes[0].get_lines(), LINES, loc="outside lower center", ncols=len(LINES))
        figure.suptitle(
            "Does KV shifting help to learn 3-grams?\nLine: median of the seeds. Band: all seeds.", fontsize=11
        )
        return figure

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw a panel for each size, to explore."""
        from ihlab.plots import interactive

        parts = data["curve"].str.rsplit(", ", n=1, expand=True)
        title = f"Does KV shifting help to learn 3-grams? ({scale} scale)"
        axes = {"xlabel": "training step", "ylabel": "accuracy on x<sub>3</sub>"}
        return interactive.curves(
            data.assign(model=parts[0], size=parts[1]), "step", "accuracy", "model", "size", LINES, title, **axes
        )


def _over_training(data: pd.DataFrame, curve: str) -> list[float]:
    """Return the area under each seed's curve, over unevenly spaced evaluations, divided by the steps trained."""
    return [
        float((run["accuracy"].rolling(2).mean() * run["step"].diff()).sum() / run["step"].max())
        for _, run in data[data["curve"] == curve].groupby("seed")
    ]


MEASURES: dict[str, tuple[str, Callable[[pd.DataFrame, str], list[float]]]] = {
    "final": ("final accuracy", partial(final, column="accuracy")),
    "mean": ("mean accuracy over training (linear between evaluations)", _over_training),
}


def _no_effect(size: str, kind: str, number: Number) -> Ask:
    """Ask the paper's sentence of a size."""
    return Ask(
        ".".join(filter(None, ("no_effect_on_3_grams", kind, slug(size)))),
        f"KV shifting learns 3-grams as well as vanilla attention, within {MARGIN:g} of its accuracy ({size}).",
        number, below=MARGIN, source="Appendix E.3, Figure 9", of_paper=True, statement=37, setting={"size": size},
    )  # fmt: skip


def _equal(size: str, kind: str) -> Ask:
    """Ask whether two attentions differ by one measure."""
    what, measured = MEASURES[kind]
    curves = f"{KV}, {size}", f"{VANILLA}, {size}"

    def difference(data: pd.DataFrame) -> stats.Estimate:
        kv, vanilla = (measured(data, curve) for curve in curves)
        return stats.size(stats.shift(kv, vanilla, stats.DIFFERENCE))

    words = f"size of the difference in {what}, KV shifting minus vanilla"
    return _no_effect(size, kind, named(words, difference, {"curve": curves[0]}))


def _sooner(size: str, scale: Scale) -> Ask:
    """Ask whether KV shifting needs fewer steps to 90%. Even if all models learn the table, one may learn sooner."""
    kv, vanilla = ({"curve": f"{arm}, {size}"} for arm in (KV, VANILLA))
    ask = partial(
        Ask, f"sooner.{slug(size)}", below=SOONER, source="related to Appendix E.3, added after the runs", statement=28,
        against=True, setting={"size": size}, declared="2026-11-23",
    )  # fmt: skip
    at = ask(f"KV shifting learns 3-grams sooner ({size}).", of(_steps, ratio(kv, vanilla)))
    return ask(
        f"KV shifting needs less than {SOONER} of vanilla's steps to learn 3-grams ({size}).",
        of(partial(_steps, interpolated=True), ratio(kv, vanilla)),
        first=at if scale == "laptop" else None,
        changed=CHANGED,
    )


def _steps(data: pd.DataFrame, interpolated: bool = False) -> pd.DataFrame:
    """Return a row for each run with its steps to 90%: of the first such evaluation, or interpolated before it."""
    table = steps_per_run(data, ACCURACY, "accuracy").sort_values("seed", ignore_index=True)
    if interpolated:
        for curve in set(table["curve"]):
            table.loc[table["curve"] == curve, "steps_to_90"] = crossings(data, curve, ACCURACY, "accuracy")
    return table
