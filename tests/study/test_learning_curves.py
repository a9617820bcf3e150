"""What experiments of learning curves share."""

import math

import pandas as pd
import pytest

from ihlab import ModelConfig, RunConfig, train
from ihlab.study import stats
from ihlab.study.ask import of, ratio
from ihlab.study.learning_curves import crossings, final, learning_curve_table, plan, steps_per_run, steps_to
from tasks import InductionTask


@pytest.fixture
def base():
    task = InductionTask(vocab_size=40, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=40, n_ctx=12)
    return RunConfig(task=task, model=model, steps=4, batch_size=2, warmup=0, eval_rows=8, checkpoints=2, eval_every=2)


def test_every_curve_has_every_seed_and_differs_in_the_fields_named(base):
    planned = plan("figure", base, {"plain, 1 (a)": {}, "deep": {"n_layers": 2}}, seeds=3)
    assert [(p.curve, p.config.seed, p.config.model.n_layers) for p in planned] == [
        *(("plain, 1 (a)", seed, 1) for seed in range(3)),
        *(("deep", seed, 2) for seed in range(3)),
    ]
    assert planned[0].config.name == "figure-plain-1-a-0"


def test_the_table_holds_every_evaluation_of_every_run(base, tmp_path):
    runs = [("a", train(base, tmp_path)), ("b", train(base.replace(seed=1), tmp_path))]
    table = learning_curve_table(runs)
    assert table.groupby("curve")["step"].apply(list).to_dict() == {"a": [0, 2, 4], "b": [0, 2, 4]}
    assert table["n_params"].unique().tolist() == [runs[0][1].done["n_params"]]
    assert table[table["curve"] == "b"]["eval_loss"].tolist() == runs[1][1].metrics["eval_loss"].tolist()
    assert list(table.columns) == [
        "curve", "d_model", "n_params", "lr", "seed", "horizon", "rows", "step", "tokens", "train_loss", "eval_loss",
        "accuracy", "accuracy_first",
    ]  # fmt: skip
    assert (table["lr"].unique(), table["rows"].unique(), table["horizon"].unique()) == (base.lr, 8, 4)


def test_the_horizon_is_where_the_rate_begins_to_fall(base, tmp_path):
    falling = base.replace(schedule="trapezoid", steps=10)
    assert learning_curve_table([("a", train(falling, tmp_path))])["horizon"].unique() == 8


def table(**curves: list[list[tuple[int, float]]]) -> pd.DataFrame:
    """A curve's seeds, each a list of (step, accuracy); the rate is constant up to step 100."""
    rows = [
        {"curve": curve, "seed": seed, "step": step, "accuracy_first": accuracy, "horizon": 100}
        for curve, runs in curves.items()
        for seed, run in enumerate(runs)
        for step, accuracy in run
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0).sort_values("step", kind="stable")


def test_steps_to_an_accuracy_count_up_to_the_horizon():
    """Reached at 50; at 100, the last that counts; at 110, when the rate falls; never; and lost again."""
    runs = [
        [(0, 0.1), (50, 0.9), (100, 0.95), (110, 0.99)],
        [(0, 0.1), (50, 0.2), (100, 0.9), (110, 0.99)],
        [(0, 0.1), (50, 0.2), (100, 0.89), (110, 0.99)],
        [(0, 0.1), (50, 0.2), (100, 0.3), (110, 0.4)],
        [(0, 0.1), (50, 0.93), (100, 0.3), (110, 0.4)],
    ]
    data = table(a=runs)
    assert steps_to(data, "a", 0.9) == [50, 100, math.inf, math.inf, 50]
    assert final(data, "a") == [0.99, 0.99, 0.99, 0.4, 0.4]


def test_a_run_that_ended_where_it_had_learned_counts_as_one_that_went_on():
    whole, ended = [(0, 0.1), (50, 0.9), (110, 0.99)], [(0, 0.1), (50, 0.9)]
    data = table(a=[whole], b=[ended])
    assert steps_to(data, "a", 0.9) == steps_to(data, "b", 0.9) == [50]


def test_the_ratio_of_steps_knows_the_horizon():
    """Never within 100 steps is more than 100, though the runs went on to 110."""
    fast, slow = [(0, 0.1), (20, 0.9)], [(0, 0.1), (110, 0.99)]
    data = table(a=[fast] * 5, b=[slow] * 5)
    estimate = of(steps_per_run, ratio({"curve": "a"}, {"curve": "b"}))(data).estimate
    assert estimate == stats.ratio_of_times([20.0] * 5, [math.inf] * 5, 100.0)
    assert estimate.value == estimate.high == 0.2
    assert estimate.low == 0


def test_a_crossing_lies_between_two_evaluations():
    columns = ("seed", "step", "accuracy_first")
    late, never, at_once = ((0, 0, 0.1), (0, 10, 0.5), (0, 20, 0.9), (0, 30, 0.2)), ((1, 0, 0.1),), ((2, 0, 0.8),)
    data = pd.DataFrame([*late, *never, *at_once], columns=columns).assign(curve="a", horizon=25)
    assert crossings(data, "a", 0.7) == [pytest.approx(15.0), math.inf, 0.0]
    assert steps_to(data, "a", 0.7) == [20.0, math.inf, 0.0]
    assert crossings(data, "a", 0.9) == [pytest.approx(20.0), math.inf, math.inf], "at an evaluation itself"
