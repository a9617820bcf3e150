"""What do sequences of period 2 teach? (Section 3.2, after Theorem 3.4.)

The paper says that [A][B][A][B] can be answered by the previous token, and that a head which learns
this fails on [A][B][C][A][B]. A model is trained on period 2 and tested on periods 2 to 8. In a
sequence of period p these rules are right with these probabilities, where p > 2 (all are right in
period 2):

| rule | right | says the token before |
| --- | --- | --- |
| induction: what followed the current token | 1 | 0 |
| the token before the current one | 0 | 1 |
| any token of the sequence but the current one | 1 / (p - 1) | 1 / (p - 1) |

So a model that has not learned induction can have an accuracy of .5 in period 3. It fails there if
its accuracy is nearer to .5 than to 1: below .75. The threshold first declared, .2, is lower than
the accuracy of most rules without induction. An ablation measures which value route a model needs
in period 2. Induction reads the own value of the token it attends to. A head that attends to the
current token and reads its previous value also answers with the token before.

Two controls are trained from the same start on ordinary induction (random repeats) and on period 3.
Then the models of period 2 continue on these two tasks, to see whether what they learned saves or
costs steps. All have one learning rate. Measures and thresholds were fixed before the runs. The
setting was chosen on two other seeds, on which KV shifting followed a mixture of the first two
rules and two vanilla layers the third.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.model.config import ModelConfig
from ihlab.plots.style import BLACK
from ihlab.plots.views import curves
from ihlab.recipes.induction import DEPTHS, KV1, V2
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, on_table, pick, ratio, untested_if, values
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Grid, Run, Study, Trained, cells
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks import IGNORE, Batch, InductionTask

KV_2, V_2 = f"{KV1}, period 2", f"{V2}, period 2"
KV_RANDOM, KV_3 = f"{KV1}, random repeats", f"{KV1}, period 3"
KV_2_RANDOM, KV_2_3 = f"{KV1}, period 2, then random repeats", f"{KV1}, period 2, then period 3"
LATER = {KV_2_RANDOM: None, KV_2_3: 3}
"""The period on which each curve goes on; None: random repeats."""
TESTED = tuple(range(2, 9))
ROWS = 768
"""Test sequences per period."""
FAILS = 0.75
"""Accuracy in period 3 halfway between the rule "any token but the current one" and induction."""


def periodic(period: int | None) -> InductionTask:
    """Return the task of a period; None: random repeats."""
    return InductionTask(vocab_size=64, length=32, min_token=0, period=period)


TASK = periodic(None)
MODEL = ModelConfig(n_layers=1, d_model=32, n_heads=4, d_vocab=TASK.vocab_size, n_ctx=TASK.length)
GRID = Grid(
    RunConfig(
        task=TASK, model=MODEL, steps=300, batch_size=32, lr=8e-3, warmup=10, eval_every=5, eval_growth=0.0,
        eval_rows=128, checkpoints=2,
    ),
    {
        "curve": {
            KV_2: {"period": 2, **DEPTHS[KV1]},
            V_2: {"period": 2, **DEPTHS[V2]},
            KV_RANDOM: DEPTHS[KV1],
            KV_3: {"period": 3, **DEPTHS[KV1]},
        }
    },
)  # fmt: skip


def train_on(trained: Trained) -> list[tuple[Cell, RunConfig]]:
    """Continue the first eight models of period 2 on random repeats and on period 3."""
    from ihlab.training.fork import fork_config, start_fork

    planned: list[tuple[Cell, RunConfig]] = []
    for curve, period in LATER.items():
        for first, run in trained:
            if first == KV_2 and run.config.seed < 8:
                task, steps = periodic(period), run.config.steps
                later = fork_config(run, steps, steps=2 * steps, task=task)
                start_fork(run, later, run.folder.parent)
                planned.append(({"curve": curve}, later))
    return planned


def measure(run: Run) -> dict[str, float]:
    """Return a model's steps to learn its task, the effect of ablating its value routes, and its
    answers by period.

    - steps_to_90: the first evaluated step with 90% accuracy on the training task, from the start
      of that task;
    - fall_own, fall_before: the fall in accuracy in period 2 if the route of the own or of the
      previous value is ablated in all heads; NaN for vanilla models;
    - right_2, before_2, current_2, right_3, ...: the fractions of answers in each tested period
      that are right, the token before (where it is not right) and the current token.
    """
    import torch

    from ihlab.interp.routes import Route, route_effects

    model, metrics, first = run.model(), run.metrics, run.config.first_step
    row = {"steps_to_90": first_reach(metrics["step"], metrics["accuracy"], ACCURACY) - first}
    row |= {"fall_own": np.nan, "fall_before": np.nan}
    for period in TESTED:
        batch = periodic(period).batch(ROWS, np.random.default_rng(period))
        with torch.no_grad():
            said = model(torch.from_numpy(batch.inputs)).argmax(dim=-1).numpy()
        if period == 2 and model.cfg.shifted:
            effects = route_effects(
                model, batch, routes=[Route(None, 0), Route(None, 1)], together=True
            )
            row["fall_own"], row["fall_before"] = effects["accuracy_fall"]
        row |= {f"{kind}_{period}": fraction for kind, fraction in answered(batch, said).items()}
    return row


def answered(batch: Batch, said: np.ndarray) -> dict[str, float]:
    """Return the fractions of answers that are right, the token before and not right, and the
    current token.
    """
    asked = batch.answers != IGNORE
    before = np.pad(batch.inputs, ((0, 0), (1, 0)))[:, :-1]
    right = said == batch.answers
    kinds = {"right": right, "before": (said == before) & ~right, "current": said == batch.inputs}
    return {kind: float(hit[asked].mean()) for kind, hit in kinds.items()}


# Numbers


def unlearned(curve: str) -> Callable[[pd.DataFrame], str]:
    """Return the reason why nothing is tested if a curve has not learned period 2."""

    def reason(data: pd.DataFrame) -> str:
        learned = np.mean(values(data, {"curve": curve}, "right_2")) > ACCURACY
        return "" if learned else "Period 2 is not learned."

    return reason


def answers(column: str, curve: str, period: int) -> Number:
    """Return the fraction of answers of one kind in a tested period."""
    what = "accuracy" if column == "right" else "fraction of answers that are the previous token"

    def number(data: pd.DataFrame) -> Measured:
        fractions = values(data, {"curve": curve}, f"{column}_{period}")
        return Measured(
            f"{what} in period {period}, {curve}",
            stats.mean_accuracy(fractions, ROWS),
            len(fractions),
        )

    return number


def of_value(data: pd.DataFrame) -> Measured:
    """Return the accuracy in period 3 of seeds that need a token's own value, minus that of the
    others.
    """
    rows = pick(data, {"curve": KV_2})
    own_value = rows["fall_own"] > rows["fall_before"]
    own, others = rows.loc[own_value, "right_3"], rows.loc[~own_value, "right_3"]
    measure = (
        f"accuracy in period 3 of the {len(own)} seeds that need the own value more than the previous token's, "
        f"minus that of the other {len(others)}"
    )
    return Measured(measure, stats.shift(own.tolist(), others.tolist(), (-1, 1)), len(rows))


def any_token(data: pd.DataFrame) -> Measured:
    """Return how far two vanilla layers are from answering each token but the current one equally
    often.
    """
    gaps = values(data, {"curve": V_2}, "right_3 - before_3")
    return Measured(
        "absolute difference between the fractions of right answers and of previous tokens as answers, in period 3",
        stats.size(stats.mean(gaps, stats.DIFFERENCE)),
        len(gaps),
    )


def steps(then: str, start: str) -> Number:
    """Return the steps to 90% after the change of task, relative to those of a model trained only
    on the new task.
    """
    one, other = ({"curve": curve, "period": 2} for curve in (then, start))
    return on_table(
        lambda data: data.assign(period=2), ratio(one, other)
    )  # the published measure names the first test


_lines = curves(
    "period", "right", colors="curve", each_seed=True, xlabel="period of the test", ylabel="accuracy",
    ylim=(-0.03, 1.03), xticks=TESTED,
)  # fmt: skip


def view(data: pd.DataFrame) -> Figure:
    """Draw every seed's accuracy against the tested period."""
    periods = np.array(TESTED)
    tested = {f"right_{period}": period for period in TESTED}
    shown = data[data["curve"].isin((KV_2, V_2, KV_RANDOM))].rename(columns=tested)
    figure = _lines(shown.melt(["curve", "seed"], list(TESTED), "period", "right"))
    figure.axes[0].plot(periods, 1 / (periods - 1), ":", color=BLACK)
    return figure


paper = partial(Ask, source="section 3.2", of_paper=True, statement=15)
ours = partial(Ask, source="related to section 3.2")
KV_FAILS = partial(
    paper, "fails_on_period_3", number=untested_if(unlearned(KV_2), answers("right", KV_2, 3))
)

PERIOD = Study(
    name="period",
    heading="Is training on one period enough?",
    title="Trained on one period, tested on others: is it induction?",
    caption="Line: a seed. Dotted: any token but the current one. The token before is right in period 2 only.",
    declared="2026-11-27",
    cells=GRID.cells,
    follow_up_cells=cells(curve=LATER),
    config=GRID,
    seeds=lambda cell: range(16 if cell["curve"] == KV_2 else 8),
    follow_up=train_on,
    measure=measure,
    asks=(
        paper(
            "period_2_learned",
            "One layer of KV shifting learns [A][B][A][B].",
            answers("right", KV_2, 2),
            above=0.99,
        ),
        KV_FAILS(
            "A model trained on [A][B][A][B] fails on [A][B][C][A][B]: its accuracy is nearer to that of naming any "
            "token but the current one than to that of induction.",
            below=FAILS,
            first=KV_FAILS(
                "What is learned from [A][B][A][B] fails on [A][B][C][A][B].", below=0.2
            ),
            changed="2026-11-27: naming any token but the current one is right in half of the cases, so .2 is below "
            "chance",
        ),
        paper(
            "predicts_previous_token",
            "A model that learns [A][B][A][B] predicts the previous token.",
            untested_if(unlearned(KV_2), answers("before", KV_2, 3)),
            above=0.5,
        ),
        ours(
            "random_repeats_teach_3",
            "Failing on period 3 comes from training on period 2: random repeats teach period 3.",
            answers("right", KV_RANDOM, 3),
            above=0.9,
        ),
        ours(
            "own_value_seeds_better",
            "Seeds that need a token's own value in period 2 answer period 3 better than the others.",
            untested_if(unlearned(KV_2), of_value),
            above=0.0,
        ),
        ours(
            "vanilla_any_other_token",
            "Trained on period 2, two vanilla layers learn to name any token but the current one.",
            untested_if(unlearned(V_2), any_token),
            below=0.1,
        ),
        ours(
            "period_2_first_costs_steps",
            "Training on period 2 first costs steps: induction is learned later.",
            steps(KV_2_RANDOM, KV_RANDOM),
            above=1.0,
        ),
        ours(
            "period_2_first_saves_steps",
            "Training on period 2 first saves half of the steps to period 3.",
            steps(KV_2_3, KV_3),
            below=0.5,
        ),
    ),
    view=view,
)
