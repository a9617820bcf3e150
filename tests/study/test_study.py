"""The engine: what a study plans, how it chooses rates, what its table holds, and what it leaves to
`make`.
"""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab import InductionTask, ModelConfig, RunConfig
from ihlab.plots.views import dots
from ihlab.study import stats
from ihlab.study.ask import (
    Ask,
    Measured,
    mean_over_seeds,
    on_table,
    untested_if,
)
from ihlab.study.experiment import smoke
from ihlab.study.ledger import Folder
from ihlab.study.study import Study, Tuned, cells, steps_to_90
from tasks import ConfigError

TASK = InductionTask(vocab_size=24, length=8)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=24, n_ctx=8)


def config(cell):
    model = MODEL.replace(attention=cell["variant"])
    return RunConfig(task=TASK, model=model, steps=100, batch_size=4, warmup=1, eval_rows=8)


def study(**changes):
    given = {
        "name": "toys", "title": "Toys", "declared": "2026-01-01", "config": config, "seeds": range(3),
        "cells": cells(variant=("vanilla", "k_shift")), "view": dots("variant"),
        "asks": [Ask("best", "Vanilla learns it.", mean_over_seeds("best", {"variant": "vanilla"}), above=0.5)],
    }  # fmt: skip
    return Study(**{**given, **changes})


TUNED = Tuned(rates=(0.1, 0.2))


class Fake:
    """A finished run with given accuracies and losses at its evaluations."""

    def __init__(self, config, accuracy, loss=1.0, diverged=False):
        self.config, self.diverged = config, diverged
        steps = np.linspace(0, config.steps, len(accuracy))
        self.metrics = pd.DataFrame(
            {"step": steps, "accuracy_first": accuracy, "accuracy": 0.0, "eval_loss": loss}
        )


def fakes(planned, accuracy=(1.0,)):
    return [(plan.cell_name, Fake(plan.config, accuracy)) for plan in planned]


def seeds_of(planned):
    """The seeds of each cell's runs."""
    found = {}
    for plan in planned:
        found.setdefault(plan.cell_name, []).append(plan.config.seed)
    return found


def test_without_tuning_every_cell_has_every_seed_once():
    plain = study()
    planned = plain.runs("laptop")
    assert seeds_of(planned) == {"vanilla": [0, 1, 2], "k_shift": [0, 1, 2]}
    assert all(plan.config.model.attention == plan.cell_name for plan in planned)
    assert planned[0].config.name == "toys-vanilla-0.001-0"
    assert plain.follow([], "laptop") == []
    assert seeds_of(plain.runs("smoke")) == {"vanilla": [0, 1], "k_shift": [0, 1]}


def test_seeds_and_starts_can_depend_on_the_cell_and_fields_on_the_scale():
    uneven = study(
        seeds=lambda cell: range(1 if cell["variant"] == "vanilla" else 4),
        config=lambda cell: config(cell).replace(lr=0.5 + cell["seed"]),
        scales={"laptop": {}, "gpu": {"seeds": range(2), "stacked": True}},
    )
    planned = uneven.runs("laptop")
    assert seeds_of(planned) == {"vanilla": [0], "k_shift": [0, 1, 2, 3]}
    assert [plan.config.lr for plan in planned] == [0.5, 0.5, 1.5, 2.5, 3.5]
    larger = uneven.runs("gpu")
    assert seeds_of(larger) == {"vanilla": [0, 1], "k_shift": [0, 1]}
    assert [plan.stacked for plan in (planned[0], larger[0])] == [False, True]


def test_every_cell_is_tuned_on_other_seeds_and_then_trained_at_its_own_rate():
    rates = {"vanilla": (0.1, 0.2), "k_shift": (0.3, 0.4)}
    tuned = study(tuned=Tuned(rates=lambda cell: rates[cell["variant"]]))
    first = tuned.runs("laptop")
    assert seeds_of(first) == {"vanilla": [100, 101] * 2, "k_shift": [100, 101] * 2}
    assert [plan.config.lr for plan in first[::2]] == [0.1, 0.2, 0.3, 0.4]
    trained = []
    for plan in first:
        early = plan.config.lr in (0.2, 0.3)
        trained += fakes([plan], [0, 0.95 * early, 0.95])
    second = tuned.follow(trained, "laptop")
    assert seeds_of(second) == {"vanilla": [0, 1, 2], "k_shift": [0, 1, 2]}
    assert [plan.config.lr for plan in second] == [0.2] * 3 + [0.3] * 3
    assert [p.config.lr for p in study(tuned=TUNED).runs("smoke")] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("by", "slow", "fast", "best"),
    [
        ("steps", [0, 0.5, 0.4], [0, 0.2, 0.6], 0.2),  # none learns: the highest accuracy
        ("loss", [0], [0], 0.1),  # a tie: the smallest
    ],
)
def test_the_best_rate(by, slow, fast, best):
    run = config({"variant": "vanilla"})
    runs = [Fake(run.replace(lr=0.1), slow), Fake(run.replace(lr=0.2), fast)]
    assert Tuned(rates=(0.1, 0.2), by=by).best(runs) == best


def test_a_cell_can_take_another_cells_rate():
    _, shift = cells(variant=("vanilla", "k_shift"))
    shared = study(tuned=Tuned(rates=(0.1, 0.2), rate_of=lambda cell: shift))
    first = shared.runs("laptop")
    assert seeds_of(first).keys() == {"k_shift"}
    second = shared.follow(fakes(first, [0, 0.95]), "laptop")
    assert seeds_of(second).keys() == {"vanilla", "k_shift"}
    assert {plan.config.lr for plan in second} == {0.1}


def test_the_table_has_the_cell_the_config_and_the_measurement():
    tuned = study(
        tuned=Tuned(rates=(0.1, 0.2), measure=lambda run: {"x": 2 / 3}),
        measure=lambda run: {"x": 1 / 3, "horizon": 3},
        curve=lambda run: run.metrics[["step"]],
    )
    first = fakes(tuned.runs("laptop"), [0.5, 1.0])
    trained = first + fakes(tuned.follow(first, "laptop"), [0.5, 1.0])
    data = tuned.gather(trained, "laptop")
    assert data.columns.tolist() == ["kind", "variant", "lr", "seed", "horizon", "x"]
    measured = data.groupby("kind")["x"].unique().map(list).to_dict()
    assert measured == {"run": [0.3333333333], "tuning": [0.6666666667]}
    assert set(data.loc[data["kind"] == "tuning", "seed"]) == {100, 101}
    assert data.groupby("kind")["horizon"].unique().map(list).to_dict() == {
        "run": [3],
        "tuning": [100],
    }
    curves = tuned.gather_curves(trained, "laptop")
    assert curves.columns.tolist() == ["variant", "lr", "seed", "step"]
    assert curves.groupby(["variant", "seed"])["step"].apply(list).tolist() == [[0, 100]] * 6
    assert study().gather_curves([], "laptop") is None


def test_steps_to_90_are_of_the_accuracy_that_stops_a_run():
    fake = Fake(config({"variant": "vanilla"}), [0.0, 0.92, 0.8])
    assert steps_to_90(fake) == {"steps_to_90": 50, "accuracy": 0.8, "best": 0.92}
    fake.config = fake.config.replace(stop_at_metric="accuracy")
    assert steps_to_90(fake)["steps_to_90"] == math.inf


def test_claims_and_summary_are_of_the_runs_for_claims():
    rows = [
        ("run", "vanilla", 0, 10.0, 0.1),
        ("run", "vanilla", 1, math.inf, 0.1),
        ("run", "vanilla", 2, 20.0, 0.1),
        ("tuning", "vanilla", 100, 1.0, 1.0),
        ("run", "k_shift", 0, math.inf, 7.0),
    ]
    data = pd.DataFrame(rows, columns=["kind", "variant", "seed", "steps_to_90", "best"])
    asked = Ask("low", "x", mean_over_seeds("best", {"variant": "k_shift"}), above=0.5)
    [claim] = study(asks=[asked]).claims(data, "laptop")
    assert (claim.estimate.value, claim.seeds, claim.declared) == (7.0, 1, "2026-01-01")
    assert study().summary(data, "laptop").to_dict("list") == {
        "variant": ["vanilla", "k_shift"],
        "seeds": [3, 1],
        "steps_to_90": ["20 (2 of 3)", "never (0 of 1)"],
    }


def test_smoke_scale_is_derived_from_the_published_run():
    large = RunConfig(task=TASK, model=MODEL, batch_size=512, accumulate=8, compile=True)
    small = smoke(large)
    assert (small.task, small.model, small.lr) == (large.task, large.model, large.lr)
    assert (small.steps, small.batch_size, small.accumulate, small.compile) == (12, 8, 1, False)
    planned = study(seeds=(5,)).runs("smoke")[1].config
    assert planned.digest == smoke(config({"variant": "vanilla"})).replace(seed=1).digest


def test_smoke_scale_leaves_out_questions_about_cells_that_it_does_not_train():
    small = study(smoke_cells=cells(variant=("k_shift",)))
    assert {plan.cell_name for plan in small.runs("smoke")} == {"k_shift"}
    data = pd.DataFrame({"variant": ["k_shift"], "seed": [0], "best": [1.0]})
    assert small.claims(data, "smoke") == []
    with pytest.raises(ConfigError, match="no run of vanilla"):
        small.claims(data, "laptop")


A, B = {"a": "x", "b": "y"}, {"a": "x", "b": 2}


def of_cells(*cells, measure=lambda run: {"x": run.config.lr}, **changes):
    """A study whose cell number i has the learning rate i + 1, and which asks for each."""

    def config_of(cell):
        lr = 1.0 + [repr({**each, "seed": cell["seed"]}) for each in cells].index(repr(cell))
        return RunConfig(
            task=TASK, model=MODEL, steps=4, batch_size=4, warmup=1, eval_rows=8, lr=lr
        )

    asks = [Ask(f"q{i}", "q", mean_over_seeds("x", cell), above=0) for i, cell in enumerate(cells)]
    given = {
        "cells": cells,
        "config": config_of,
        "asks": asks,
        "measure": measure,
        "summary_columns": ["x"],
        "view": dots("a", "x"),
        **changes,
    }
    return study(**given)


def gathered(made):
    return made.gather(fakes(made.runs("laptop")), "laptop")


@pytest.mark.parametrize(
    "values",
    [
        ("NA", 1),
        (1 / 3, 0.33333),
        ("x\ny", "z"),
    ],
    ids=repr,
)
def test_a_cell_finds_its_own_runs_in_the_table_and_in_its_csv(values, tmp_path):
    made = of_cells(*({"a": value} for value in values))
    data = gathered(made)
    folder = Folder(tmp_path / made.name)
    folder.publish(made, data)
    for table in (data, folder.data()):
        assert [(claim.estimate.value, claim.seeds) for claim in made.claims(table, "laptop")] == [
            (1.0, 3),
            (2.0, 3),
        ]
        assert made.summary(table, "laptop")["seeds"].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([{}], "a cell has no columns"),
        ([A, B, A], "are one cell in a stored table"),
        ([{"a": 1}, {"a": "1.0"}], "are one cell"),
        (
            [{"a": "x | y", "b": "z"}, {"a": "x", "b": "y | z"}],
            r"'x \| y'.* and of .*'y \| z'.* have one name",
        ),
        ([{"a": "x"}, {"a": "y", "b": 1}], "different columns"),
        ([{"a": None}], "a is None, but a cell"),
        ([{"seed": 1}], "the column 'seed', which belongs"),
    ],
)
def test_cells_that_a_table_cannot_tell_apart_are_refused(cells, sentence):
    with pytest.raises(ConfigError, match=sentence):
        of_cells(*cells)


def asks(*numbers):
    return {"asks": [Ask(f"q{i}", "q", number, above=0) for i, number in enumerate(numbers)]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"cells": [A, "x"]}, "'x' must give columns their values"),
        ({"seeds": [0, 1, 1]}, "has the seed 1 twice"),
        (
            {"seeds": range(99, 103), "tuned": TUNED},
            "the seeds 100, 101 are for tuning and for claims",
        ),
        (
            {"tuned": Tuned(rates=(0.1,), rate_of=lambda cell: B if cell == A else A)},
            "which is no tuned cell",
        ),
        ({"tuned": Tuned(rates=(0.1,), changes={"seed": 3})}, "has seed, which tuning sets itself"),
        (
            {"asks": [Ask("q", "q", mean_over_seeds("x", A), above=0)] * 2},
            "two questions with the id 'q'",
        ),
        (asks(mean_over_seeds("x", {**A, "b": "Y"})), "question 'q0': the study does not train"),
        (
            asks(mean_over_seeds("x", {"a": "x"})),
            "leaves out b, so it counts the runs of 2 cells as seeds of one",
        ),
        (asks(None), "must be a function of the table"),
        ({"asks": None}, "asks is None, but must be a list"),
        ({"seeds": [-1]}, "must be a whole number, at least 0"),
        ({"seeds": "ab"}, "seeds is 'ab', but must be a list of numbers"),
        ({"config": lambda: None}, "config must be a function of a cell"),
        ({"scales": {"laptpo": {}}}, "did you mean 'laptop'"),
        (asks(lambda data: absent), "raises NameError"),  # noqa: F821
        (asks(lambda data: 3.0), "must be a Measured"),
        (asks(on_table(lambda data: data, mean_over_seeds("x", {"a": "x"}))), "2 rows of seed 0"),
    ],
)
def test_a_study_that_cannot_answer_its_questions_is_refused_when_it_is_built(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        of_cells(A, B, **changes)


def test_an_argument_of_the_wrong_kind_is_refused():
    number = mean_over_seeds("x", A)
    with pytest.raises(ConfigError, match="threshold is nan, but must be a number"):
        Ask("q", "q", number, above=math.nan)
    with pytest.raises(ConfigError, match="the reason is a number: exchange the two"):
        untested_if(number, lambda data: "")


def test_a_number_may_need_what_measure_returns():
    made = of_cells(A, B, **asks(lambda data: Measured("n", stats.mean([data["x"].min()]), 3)))
    assert [claim.estimate.value for claim in made.claims(gathered(made), "laptop")] == [1.0]


@pytest.mark.parametrize(
    ("measured", "times", "sentence"),
    [
        ({"x": "high"}, 1, "A question needs numbers in 'x' of x, y"),
        ({"x": 1.0, "seed": 7}, 1, "measure returns seed, but these columns describe the run"),
        (pd.DataFrame({"x": [1.0]}), 1, "one value for each column: a table with several rows"),
        ({"x": 1.0}, 2, "Question 'q0': The table has 2 rows of seed 0 for x, y"),
    ],
)
def test_a_table_that_no_question_can_read_is_named(measured, times, sentence):
    made = of_cells(A, measure=lambda run: measured)
    with pytest.raises(ConfigError, match=sentence):
        made.claims(pd.concat([gathered(made)] * times), "laptop")


def test_small_measures_keep_ten_digits():
    measured = pd.DataFrame([{"error": 1.23456789012e-9, "count": 3}])
    beside = Study._beside(None, {"n": 1}, measured, "measure")
    assert beside.to_dict("records") == [{"n": 1, "error": 1.234567890e-9, "count": 3}]
