"""The evaluations of a run, and the step at which it has learned."""

import math

import pandas as pd
import pytest

from ihlab import ModelConfig, RunConfig, train
from ihlab.study.learning_curves import crossing, evaluations, learning
from tasks import InductionTask

TASK = InductionTask(vocab_size=40, length=12)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=40, n_ctx=12)
BASE = RunConfig(
    task=TASK,
    model=MODEL,
    steps=4,
    batch_size=2,
    warmup=0,
    eval_rows=8,
    checkpoints=2,
    eval_every=2,
    eval_growth=0.0,
)


class Fake:
    """A finished run whose rate is constant up to step 96 of 120, with an accuracy of first answers
    at some steps.
    """

    def __init__(self, *points):
        self.config, self.done = BASE.replace(steps=120, schedule="trapezoid"), {"n_params": 7}
        self.metrics = pd.DataFrame(points, columns=["step", "accuracy_first"])


def test_evaluations_are_the_metrics_of_the_run(tmp_path):
    run = train(BASE, tmp_path)
    table = evaluations(run)
    assert table["step"].tolist() == [0, 2, 4]
    assert table["eval_loss"].tolist() == run.metrics["eval_loss"].tolist()
    row = learning(run, "accuracy")
    assert (row["horizon"], row["rows"], row["n_params"]) == (4, 8, run.done["n_params"])
    assert row["final"] == run.metrics["accuracy"].iloc[-1]


@pytest.mark.parametrize(
    ("points", "steps"),
    [
        ([(0, 0.1), (50, 0.2), (96, 0.9), (110, 0.99)], 96),  # the last step that counts
        (
            [(0, 0.1), (50, 0.2), (96, 0.89), (110, 0.99)],
            math.inf,
        ),  # reached only while the rate falls
        ([(0, 0.1), (50, 0.93), (96, 0.3), (110, 0.4)], 50),  # lost again
    ],
)
def test_steps_to_90_count_up_to_the_fall_of_the_rate(points, steps):
    row = learning(Fake(*points))
    assert (row["steps_to_90"], row["horizon"], row["final"]) == (steps, 96, points[-1][1])


@pytest.mark.parametrize(
    ("points", "step"),
    [
        ([(0, 0.1), (10, 0.7), (20, 0.95), (30, 0.2)], 18.0),
        ([(0, 0.1), (20, 0.9)], 20.0),  # at an evaluation
        ([(0, 0.1), (30, 0.95)], math.inf),  # after the horizon
    ],
)
def test_a_crossing_lies_between_two_evaluations(points, step):
    assert crossing(Fake(*points).metrics, 25, "accuracy_first") == pytest.approx(step)
