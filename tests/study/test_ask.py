"""Questions about a table: which rows a cell picks, each kind of number against plain NumPy,
thresholds and ids.
"""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab.study import stats
from ihlab.study.ask import (
    Ask,
    Measured,
    NoRunsError,
    claims_of,
    described,
    difference,
    learned,
    mean_over_seeds,
    pick,
    ratio,
    untested_if,
)
from tasks import ConfigError

A, B = {"variant": "A"}, {"variant": "B"}


def table(a, b, column="steps_to_90"):
    """Runs of two variants, a tuning run of each, shuffled."""
    rows = [
        ("run", name, 0.01, seed, x)
        for name, xs in (("A", a), ("B", b))
        for seed, x in enumerate(xs)
    ]
    rows += [("tuning", name, lr, 100, 50.0) for name in "AB" for lr in (0.001, 0.01, 0.1)]
    data = pd.DataFrame(rows, columns=["kind", "variant", "lr", "seed", column]).assign(horizon=600)
    return data.sample(frac=1, random_state=0)


STEPS = table([100.0, 120.0, math.inf], [200.0, 220.0, 260.0])


def test_a_cell_picks_the_runs_for_claims_by_seed():
    assert pick(STEPS, A)["seed"].tolist() == [0, 1, 2]
    assert pick(STEPS, A, "tuning")["lr"].tolist() == [0.001, 0.01, 0.1]
    assert len(pick(STEPS.drop(columns="kind"), {**A, "lr": 0.001})) == 1
    with pytest.raises(NoRunsError, match="The table has no run of C, heads 7"):
        pick(STEPS, {"variant": "C", "heads": 7})


def test_numbers_are_those_of_stats_on_the_picked_rows():
    a, b = [100.0, 120.0, math.inf], [200.0, 220.0, 260.0]
    assert ratio(A, B)(STEPS).estimate == stats.ratio_of_times(a, b, 600)
    assert learned(A)(STEPS).estimate == stats.share(2, 3)
    data = table([0.5, 0.6], [0.1, 0.2], "best")
    assert mean_over_seeds("best", A, stats.SHARE)(data).estimate == stats.mean(
        [0.5, 0.6], stats.SHARE
    )
    assert difference(A, B, "best")(data).estimate == stats.shift(
        [0.5, 0.6], [0.1, 0.2], stats.DIFFERENCE
    )
    assert described("n", lambda rows: stats.exact(len(rows)), A)(data) == Measured(
        "n", stats.exact(len(data)), 2
    )


NEVER = table([math.inf] * 3, [math.inf] * 3)


def test_nothing_is_compared_where_neither_side_has_learned():
    untested = ratio(A, B)(NEVER)
    assert untested.estimate is None
    assert untested.why == "Neither model reaches it within the steps, so nothing is compared."
    low = table([0.52, 0.5], [0.5, 0.5], "check")
    assert difference(A, B, "check", guess=0.5)(low).why == "Neither model has learned the task."
    assert difference(A, B, "check")(low).estimate is not None


def ask(**changes):
    return Ask("faster", "A is faster.", ratio(A, B), **{"below": 0.8, **changes})


def test_a_question_becomes_a_claim():
    claim = ask(setting={"positions": "none"}, statement=3).claim(STEPS, "2026-01-01")
    assert (claim.id, claim.setting, claim.statement) == ("faster", {"positions": "none"}, 3)
    assert (claim.threshold, claim.right_side, claim.seeds) == (0.8, "below", 3)
    assert claim.declared == "2026-01-01"
    assert ask(declared="2025-12-31").claim(STEPS, "2026-01-01").declared == "2025-12-31"
    assert ask(below=None, above=2.0).claim(STEPS, "").right_side == "above"
    with pytest.raises(ConfigError, match="Ask 'faster' needs one of above and below"):
        ask(above=1.0)


def test_what_is_not_tested_keeps_its_threshold_only_with_a_measure():
    claim = ask().claim(NEVER, "")
    assert (claim.verdict, claim.threshold) == ("not tested at this scale", 0.8)
    silent = Ask("x", "y", lambda data: Measured("", None, 0, "why"), below=0.8)
    assert math.isnan(silent.claim(NEVER, "").threshold)
    told = Ask("x", "y", untested_if(lambda data: "No.", ratio(A, B)), below=0.8).claim(STEPS, "")
    assert (told.verdict, told.why, told.estimate) == ("not tested at this scale", "No.", None)


def test_a_changed_number_or_threshold_keeps_the_first_one_only_where_they_differ():
    claim = ask(first=learned(A), changed="later").claim(STEPS, "")
    assert (claim.first.estimate, claim.changed) == (learned(A)(STEPS).estimate, "later")
    assert ask(first=ratio(A, B), changed="later").claim(STEPS, "").first is None
    before = Ask("id", "A is first.", ratio(A, B), below=0.1)
    claim = ask(first=before, changed="later").claim(STEPS, "")
    assert (claim.first.sentence, claim.first.threshold) == ("A is first.", 0.1)
    assert (claim.threshold, claim.estimate) == (0.8, claim.first.estimate)


def test_a_loss_that_is_taken_for_an_accuracy_is_refused_by_the_name_of_the_question():
    losses = table([4.9, 5.0, 5.1], [4.0, 4.1, 4.2], "loss")
    asks = [Ask("low", "A is low.", mean_over_seeds("loss", A), below=6.0)]
    asks.append(Ask("high", "A is high.", mean_over_seeds("loss", A, stats.SHARE), above=0.9))
    with pytest.raises(
        ConfigError, match=r"^Question 'high': A value is 4.9, but must be from 0 to 1 here\.$"
    ):
        claims_of(asks, losses, "")


def test_a_missing_time_does_not_count_as_one_that_is_never_reached():
    missing = STEPS.assign(steps_to_90=STEPS["steps_to_90"].replace(120.0, math.nan))
    for number in (ratio(A, B), learned(A)):
        with pytest.raises(
            ConfigError, match="'steps_to_90' of A is missing for some seed, but must be a time"
        ):
            number(missing)


def test_an_older_table_answers_what_it_can_and_one_warning_names_the_other_questions():
    of_cell = Ask("c", "C learns.", learned({"variant": "C"}), above=0.5)
    gap = described("gap", lambda data: stats.exact(data["gap"].max()))
    of_column = Ask("gap", "It has a gap.", gap, above=0.5)
    known = claims_of([ask(), of_cell], STEPS, "", skip_untrained_cells=True)
    assert [claim.id for claim in known] == ["faster"]
    with pytest.warns(UserWarning, match=r"leaves 2 of 3 .* \(The table has no run of C\): c, gap"):
        assert [claim.id for claim in claims_of([ask(), of_cell, of_column], STEPS, "")] == [
            "faster"
        ]
    with pytest.raises(ConfigError, match=r"leaves 1 of 1 .* \(It has no 'gap'\): gap\."):
        claims_of([of_column], STEPS, "")
    with pytest.raises(ConfigError, match="needs 'stepz', but the table has only kind, variant"):
        ratio(A, B, "stepz")(STEPS)


def test_waiting_times_count_up_to_the_smallest_number_of_steps_of_the_compared_runs():
    """Or the model that was trained for longer would be slower, though both learn at the same step."""
    longer = STEPS.assign(horizon=np.where(STEPS["variant"] == "A", 200, 600))
    assert ratio(A, B)(longer).estimate == stats.ratio_of_times(
        [100.0, 120.0, math.inf], [200.0] + [math.inf] * 2, 200
    )


def test_arguments_in_another_order_are_refused_at_once():
    for call in (lambda: ratio("steps", A, B), lambda: mean_over_seeds(A, "best")):
        with pytest.raises(ConfigError, match=r"A number has the cell '.*', but a cell gives"):
            call()
