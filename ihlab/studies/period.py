"""What do sequences of period 2 teach? (Section 3.2, after Theorem 3.4.)

The paper says that [A][B][A][B] can be answered by the previous token, and that a head which learns this fails on
[A][B][C][A][B]. A model is trained on period 2 and tested on periods 2 to 8. In a sequence of period p these rules are
right with these probabilities, where p > 2 (all are right in period 2):

| rule | right | says the token before |
| --- | --- | --- |
| induction: what followed the current token | 1 | 0 |
| the token before the current one | 0 | 1 |
| any token of the sequence but the current one | 1 / (p - 1) | 1 / (p - 1) |

An accuracy below .2 in period 3 excludes induction and any-token rules (and a random token of the sequence, 1 / 3).
Which value route a model needs in period 2 is measured by ablation: induction reads a token's own value, and the token
before the current one is also read by a head that attends to the current token and takes the value before.

Two controls are trained from the same start on ordinary induction (random repeats) and on period 3. Then the models of
period 2 are trained on under these tasks, to see whether what they learned helps or costs steps. All have one learning
rate. Measures and thresholds were fixed before the runs. The setting was chosen on two other seeds, on which KV
shifting followed a mixture of the first two rules and two vanilla layers the third.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import DEPTHS, KV1, V2
from ihlab.claims.learning_curves import plan
from ihlab.claims.rates import ACCURACY
from ihlab.model.config import ModelConfig
from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PAGE, new_figure, printed
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks import IGNORE, Batch, InductionTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

KV_2, V_2 = f"{KV1}, period 2", f"{V2}, period 2"
KV_RANDOM, KV_3 = f"{KV1}, random repeats", f"{KV1}, period 3"
KV_2_RANDOM, KV_2_3 = f"{KV1}, period 2, then random repeats", f"{KV1}, period 2, then period 3"
CURVES: dict[str, tuple[dict[str, object], int | None]] = {
    KV_2: (DEPTHS[KV1], 2),
    V_2: (DEPTHS[V2], 2),
    KV_RANDOM: (DEPTHS[KV1], None),
    KV_3: (DEPTHS[KV1], 3),
}
"""Model fields and training period of each curve; None: random repeats."""
NEXT = {KV_2_RANDOM: KV_RANDOM, KV_2_3: KV_3}
"""The second training of the runs of `KV_2`, and the curve that is trained on the same task from the start."""
TESTED = tuple(range(2, 9))
SEEDS, MORE_SEEDS = {"smoke": 2, "laptop": 8, "gpu": 8, "paper": 8}, {"smoke": 2, "laptop": 16, "gpu": 16, "paper": 16}
"""Seeds of each curve, and of `KV_2`, whose rule differs between seeds."""
STEPS = 300
ROWS = 768
"""Test sequences per period."""
STYLES = {KV_2: (BLUE, "-"), V_2: (ORANGE, "--"), KV_RANDOM: (GREEN, "-.")}


class Period:
    """Answers on all periods of models that were trained on one."""

    name = "period"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the first training of every curve, all seeds."""
        planned = []
        for curve, (changes, period) in CURVES.items():
            task = periodic(period)
            model = ModelConfig(n_layers=1, d_model=32, n_heads=4, d_vocab=task.vocab_size, n_ctx=task.length)
            run = RunConfig(
                task=task, model=model, steps=10 if scale == "smoke" else STEPS, batch_size=32, lr=8e-3, warmup=10,
                eval_every=5, eval_growth=0.0, eval_rows=128, checkpoints=2,
            )  # fmt: skip
            planned += plan(self.name, run, {curve: changes}, (MORE_SEEDS if curve == KV_2 else SEEDS)[scale])
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Train the first models of period 2 on, and test all on every period. Return a row per model and period.

        - curve, seed, horizon: the last step, counted from the start or from the change of the task;
        - steps_to_90: the first evaluated step with 90% accuracy on the training task, counted likewise;
        - fall_own, fall_before: what ablating the own or the previous value's route in all heads takes from the
          accuracy in period 2; NaN for vanilla models;
        - period: of the test; right, before, current: the fractions of answers that are right, the token before (where
          it is not right) and the current token.
        """
        from ihlab.training.fork import fork

        second = [
            (curve, fork(run, run.config.steps, steps=2 * run.config.steps, task=periodic(CURVES[same][1]),
                         root=run.folder.parent, report=lambda *_: None))
            for curve, same in NEXT.items()
            for name, run in trained
            if name == KV_2 and run.config.seed < SEEDS[scale]
        ]  # fmt: skip
        return pd.DataFrame([row for curve, run in (*trained, *second) for row in _rows(curve, run)]).round(5)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge what period 2 teaches, and what it costs later."""
        second, third, vanilla = tested(data, KV_2, 2), tested(data, KV_2, 3), tested(data, V_2, 3)
        own, horizon = third["fall_own"] > third["fall_before"], float(data["horizon"].min())
        paper = partial(Claim, source="section 3.2", declared="2026-11-27", seeds=len(third))
        ours = partial(paper, source="beside section 3.2", of_paper=False)
        claims = [
            paper(
                sentence="[A][B][A][B] is learned.",
                measure=f"accuracy in period 2 ({KV1})",
                estimate=stats.mean_accuracy(second["right"].tolist(), ROWS),
                threshold=0.99,
            ),
            paper(
                sentence="What is learned from [A][B][A][B] fails on [A][B][C][A][B].",
                measure=f"accuracy in period 3 ({KV1}; {(third['right'] < 0.2).sum()} of {len(third)} seeds below .2)",
                estimate=stats.mean_accuracy(third["right"].tolist(), ROWS),
                threshold=0.2,
                right_side="below",
                why=unlearned(data, KV_2),
            ),
            paper(
                sentence="A model that learns [A][B][A][B] predicts the previous token.",
                measure=f"fraction of answers in period 3 that are the token before ({KV1})",
                estimate=stats.mean_accuracy(third["before"].tolist(), ROWS),
                threshold=0.5,
                why=unlearned(data, KV_2),
            ),
            ours(
                sentence="The failure comes from the period: random repeats teach period 3.",
                measure=f"accuracy in period 3 ({KV_RANDOM})",
                estimate=stats.mean_accuracy(tested(data, KV_RANDOM, 3)["right"].tolist(), ROWS),
                threshold=0.9,
                seeds=len(tested(data, KV_RANDOM, 3)),
            ),
            ours(
                sentence="Seeds that need a token's own value in period 2 answer period 3 better than the others.",
                measure=f"difference of accuracies ({own.sum()} seeds need it more than the value before, "
                f"{(~own).sum()} less)",
                estimate=stats.shift(third.loc[own, "right"].tolist(), third.loc[~own, "right"].tolist(), (-1, 1)),
                threshold=0.0,
                why=unlearned(data, KV_2),
            ),
            ours(
                sentence="Two vanilla layers learn from period 2 to answer any token but the current one.",
                measure="absolute difference of the right answers and those of the token before, in period 3",
                estimate=stats.size(stats.mean((vanilla["right"] - vanilla["before"]).tolist(), stats.DIFFERENCE)),
                threshold=0.1,
                right_side="below",
                seeds=len(vanilla),
                why=unlearned(data, V_2),
            ),
        ]
        for curve, sentence, threshold, side in (
            (KV_2_RANDOM, "Period 2 first costs steps: induction is learned later.", 1.0, "above"),
            (KV_2_3, "Period 2 first saves half of the steps to period 3.", 0.5, "below"),
        ):
            measure = f"steps to 90% accuracy, {curve} (from the change on) / {NEXT[curve]} (not there: {horizon:.0f})"
            ratio = stats.ratio_of_times(waits(data, curve), waits(data, NEXT[curve]), horizon)
            told = {"sentence": sentence, "measure": measure, "estimate": ratio, "threshold": threshold}
            claims.append(ours(**told, right_side=side, seeds=len(waits(data, curve))))
        return claims

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's accuracy against the tested period."""
        figure = new_figure(PAGE, 4.4)
        axes = figure.subplots()
        for curve, (color, dashes) in STYLES.items():
            for number, (_, run) in enumerate(data[data["curve"] == curve].groupby("seed")):
                axes.plot(run["period"], run["right"], dashes, color=color, lw=1.2, label="" if number else curve)
        periods = np.array(TESTED)
        axes.plot(periods, 1 / (periods - 1), ":", color=BLACK, label="any token but the current one")
        axes.set(xlabel="period of the test", ylabel="accuracy", ylim=(-0.03, 1.03), xticks=TESTED)
        figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(
            "Trained on one period, tested on others: is it induction?\n"
            "Line: a seed. The token before is the right answer in period 2 only.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the answers in period 3 of the models of period 2, and the medians of the later steps."""
        told = [
            f"{curve}: {rows['right'].mean():.2f} ({rows['right'].min():.2f} to {rows['right'].max():.2f}) and "
            f"{rows['before'].mean():.2f}"
            for curve in (KV_2, V_2)
            for rows in [tested(data, curve, 3)]
        ]
        later = [f"{np.median(waits(data, name)):.0f} ({name})" for pair in NEXT.items() for name in pair]
        return (
            "Right answers in period 3 (lowest and highest seed), and answers with the token before: "
            f"{'; '.join(told)}. Median steps to 90%: {', '.join(later)}."
        )


def periodic(period: int | None) -> InductionTask:
    """Return the task of a period; None: random repeats."""
    return InductionTask(vocab_size=64, length=32, min_token=0, period=period)


def tested(data: pd.DataFrame, curve: str, period: int) -> pd.DataFrame:
    """Return a curve's rows of one tested period, one per seed."""
    return data[(data["curve"] == curve) & (data["period"] == period)]


def waits(data: pd.DataFrame, curve: str) -> list[float]:
    """Return every seed's steps to 90% on its training task."""
    return tested(data, curve, 2)["steps_to_90"].astype(float).tolist()


def unlearned(data: pd.DataFrame, curve: str) -> str:
    """Return why nothing is tested if a curve has not learned period 2, else ""."""
    return "" if tested(data, curve, 2)["right"].mean() > ACCURACY else "Period 2 is not learned."


def answered(batch: Batch, said: np.ndarray) -> dict[str, float]:
    """Return the fractions of answers that are right, the token before and not right, and the current token."""
    asked = batch.answers != IGNORE
    before = np.pad(batch.inputs, ((0, 0), (1, 0)))[:, :-1]
    right = said == batch.answers
    kinds = {"right": right, "before": (said == before) & ~right, "current": said == batch.inputs}
    return {kind: float(hit[asked].mean()) for kind, hit in kinds.items()}


def _rows(curve: str, run: "Run") -> list[dict[str, Any]]:
    import torch

    from ihlab.interp.routes import Route, route_effects

    config, model = run.config, run.model()
    metrics, first = run.metrics, config.first_step
    facts = {
        "curve": curve,
        "seed": config.seed,
        "horizon": config.steps - first,
        "steps_to_90": first_reach(metrics["step"], metrics["accuracy"], ACCURACY) - first,
        "fall_own": np.nan,
        "fall_before": np.nan,
    }
    rows = []
    for period in TESTED:
        batch = periodic(period).batch(ROWS, np.random.default_rng(period))
        with torch.no_grad():
            said = model(torch.from_numpy(batch.inputs)).argmax(dim=-1).numpy()
        if period == 2 and model.cfg.shifted:
            effects = route_effects(model, batch, routes=[Route(None, 0), Route(None, 1)], together=True)
            facts["fall_own"], facts["fall_before"] = effects["accuracy_fall"]
        rows.append({**facts, "period": period, **answered(batch, said)})
    return rows
