"""With many heads, some start closer to (alpha1, beta1) = (0, 1). Does that make induction easier to learn?

Section 3.2 says so. But with heads of one width, more heads also mean more parameters. In a control, all heads of a
model start from one draw of (alpha1, beta1), so that more heads bring more parameters and no better start. If the
starts are the reason, the gain vanishes there. Starts are drawn from U(0, 1) as in the paper. Each head's alpha and
beta are its own in training, in both cases.

At the start alpha1 and beta1 are in [0, 1] and sum to 1 with alpha2 and beta2, so they equal the fractions
|alpha1| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|), which do not depend on the gauge.

Rate and steps were chosen on eight seeds that no claim uses, with 1 and 8 heads that each have their own start. Both
learn faster at .016 and .032, with about the same ratio. At .008, steps are long compared with the gaps between
evaluations. The control had not been tried when measures and thresholds were fixed.
"""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import induction_run
from ihlab.claims.learning_curves import plan
from ihlab.claims.rates import ACCURACY, median_in_words, steps_table
from ihlab.plots.curves import Line
from ihlab.plots.steps import ABOVE, MARKERS, dots, steps_axis
from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure, printed
from ihlab.theory.gauge import paper_distance
from ihlab.training.config import RunConfig

OWN, ONE = "each head has its own start", "all heads have one start"
STYLES = {OWN: Line(BLUE), ONE: Line(ORANGE, "--")}
HEADS = {"smoke": (1, 2), "laptop": (1, 2, 4, 8), "gpu": (1, 2, 4, 8), "paper": (1, 2, 4, 8)}
SEEDS = {"smoke": 2, "laptop": 24, "gpu": 24, "paper": 24}
EASIER = 0.8
"""Ratio of steps below which learning is much easier."""
NO_GAIN = 1.25
"""Largest factor between two numbers of steps that count as equal."""


class ManyHeads:
    """Steps to induction by the number of heads, with own starts and with one start for all heads of a model."""

    name = "many_heads"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every number of heads with both kinds of start. A model with one head belongs to both."""
        planned = []
        for heads in HEADS[scale]:
            kinds = STYLES if heads > 1 else (ONE,)
            curves: dict[str, dict[str, object]] = {f"{heads} heads, {starts}": {"n_heads": heads} for starts in kinds}
            planned += plan(self.name, many_heads_run(scale), curves, SEEDS[scale], stacked=True)
        return [
            Planned(p.curve, p.config.replace(init_shift=start(p.config.seed)) if ONE in p.curve else p.config, True)
            for p in planned
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per run, as in `steps_table`, with its heads, starts and distance.

        `distance` is that of the nearest head's start to (0, 1). The starts of models with one head are "all heads
        have one start".
        """
        table = steps_table(trained).drop(columns="curve")
        table.insert(0, "heads", [run.config.model.n_heads for _, run in trained])
        table.insert(1, "starts", [curve.partition(", ")[2] for curve, _ in trained])
        table["distance"] = [_nearest(run.metrics.iloc[0], run.config.model.n_heads) for _, run in trained]
        return table

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the gain from more heads, the gain in the control, and what the nearest start says about the steps."""
        claim = partial(Claim, source="section 3.2", declared="2026-11-26", seeds=SEEDS[scale])
        most, horizon = HEADS[scale][-1], float(data["horizon"].max())
        own, one, single = steps(data, OWN, most), steps(data, ONE, most), steps(data, ONE, 1)
        never = f"(not there: {horizon:.0f})"
        return [
            claim(
                sentence="With many heads, learning induction heads is much easier.",
                measure=f"steps to 90% accuracy, {most} heads with own starts / 1 head {never}",
                estimate=stats.ratio_of_times(own, single, horizon),
                threshold=EASIER,
                right_side="below",
            ),
            claim(
                of_paper=False,
                sentence="The gain from many heads vanishes if they all start alike.",
                measure=f"factor between the steps to 90% accuracy, {most} heads with one start and 1 head {never}",
                estimate=stats.factor(stats.ratio_of_times(one, single, horizon)),
                threshold=NO_GAIN,
                right_side="below",
            ),
            claim(
                sentence="With many heads, own starts, some of which are closer to (0, 1), make it much easier.",
                measure=f"steps to 90% accuracy, {most} heads with own starts / {most} heads with one start {never}",
                estimate=stats.ratio_of_times(own, one, horizon),
                threshold=EASIER,
                right_side="below",
            ),
            *(
                claim(
                    of_paper=starts == OWN,
                    sentence=f"With many heads, the closer the nearest starts to (0, 1), the easier it is ({starts}).",
                    measure="rank correlation of the nearest head's distance to (0, 1) and the steps, mean over "
                    f"{' and '.join(map(str, HEADS[scale][1:]))} heads; jackknife over seeds",
                    estimate=correlation(data, starts, HEADS[scale][1:]),
                    threshold=0.0,
                )
                for starts in STYLES
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the median steps for every number of heads, and the rank correlations."""
        told = [
            f"{', '.join(median_in_words(steps(data, starts, heads)) for heads in HEADS[scale])} if {starts}"
            for starts in STYLES
        ]
        related = [f"{correlation(data, starts, HEADS[scale][1:]).value:.2f}" for starts in STYLES]
        return (
            f"One layer of KV shifting with {', '.join(map(str, HEADS[scale]))} heads reaches 90% accuracy after these "
            f"steps, medians of {SEEDS[scale]} seeds: {'; '.join(told)}. The rank correlation of the nearest head's "
            f"distance to (0, 1) and the steps is {' and '.join(related)}."
        )

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every run's steps against the number of heads, and a line through the medians."""
        figure = new_figure(PAGE, 4.4)
        axes, horizon = figure.subplots(), float(data["horizon"].max())
        steps_axis(axes, data["steps_to_90"], horizon)
        for number, (starts, style) in enumerate(STYLES.items()):
            medians = []
            for place, heads in enumerate(HEADS[scale]):
                found = pd.Series(steps(data, starts, heads))
                beside = 0 if heads == 1 else 0.3 * (number - 0.5)
                if heads > 1 or number:
                    x = place + beside + np.linspace(-0.1, 0.1, len(found))
                    dots(axes, x, found, horizon, style, MARKERS[number], filled=False)
                medians.append((place + beside, min(float(found.median()), ABOVE * horizon)))
            axes.plot(*zip(*medians, strict=True), style.dashes, color=style.color, label=starts)
        axes.set_xticks(range(len(HEADS[scale])), [f"{heads}" for heads in HEADS[scale]])
        axes.set_xlabel("heads of 8 dimensions")
        figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(
            "Do more heads learn induction faster, and is it because some start closer to (0, 1)?\n"
            f"Marker: one of {SEEDS[scale]} seeds. Line: median.",
            fontsize=11,
        )
        return figure


def many_heads_run(scale: Scale) -> RunConfig:
    """Return the run of one layer with one head of 8 dimensions."""
    run = induction_run("smoke" if scale == "smoke" else "laptop")
    run = run.replace(model=run.model.replace(attention="kv_shift", n_heads=1, d_head=8), checkpoints=2)
    if scale == "smoke":
        return run.replace(steps=8, warmup=2)
    return run.replace(
        steps=1000, batch_size=16, lr=8e-3, warmup=20, schedule="constant", stop_at_accuracy=ACCURACY, eval_every=5,
        eval_growth=0.02, eval_rows=256,
    )  # fmt: skip


def start(seed: int) -> tuple[float, float]:
    """Return the alpha1 and beta1 from which all heads of a model of the control start, and every single head."""
    alpha1, beta1 = np.random.default_rng([1, seed]).uniform(size=2).round(6).tolist()
    return alpha1, beta1


def steps(data: pd.DataFrame, starts: str, heads: int) -> list[float]:
    """Return the steps to 90% of every seed; inf: never. One head has one start."""
    return _runs(data, starts, heads)["steps_to_90"].astype(float).tolist()


def correlation(data: pd.DataFrame, starts: str, counts: tuple[int, ...]) -> stats.Estimate:
    """Return the rank correlation of `distance` and steps within a number of heads, mean over these numbers."""
    parts = [_runs(data, starts, heads)[["distance", "steps_to_90"]] for heads in counts]

    def mean_correlation(kept: np.ndarray) -> float:
        return float(np.mean([part.iloc[kept].rank().corr().iloc[0, 1] for part in parts]))

    return stats.jackknife(mean_correlation, len(parts[0]), stats.DIFFERENCE)


def _runs(data: pd.DataFrame, starts: str, heads: int) -> pd.DataFrame:
    starts = ONE if heads == 1 else starts
    return data[(data["starts"] == starts) & (data["heads"] == heads)].sort_values("seed")


def _nearest(metrics: "pd.Series[float]", heads: int) -> float:
    """Return the least distance of a head to (0, 1) in a row of metrics."""
    return min(float(paper_distance(metrics[f"alpha1_0.{i}"], metrics[f"beta1_0.{i}"])) for i in range(heads))
