"""Meta-learner and checker: what is planned, rates that are chosen, accuracies that are read, verdicts either way."""

import pandas as pd
import pytest

from ihlab import train
from ihlab.claims.claim import judged
from ihlab.claims.labels import ATTENTION_LABELS, K_ONLY, KV, V_ONLY, VANILLA
from ihlab.studies.checker import ASKED, COMPARISONS, RATES, Checker, accuracies, label
from tasks.checker import FALSE, RECALL, TRUE

VARIANTS = tuple(ATTENTION_LABELS.values())


def table(recall, check):
    """A laptop table: the accuracies of each (asked, variant), a little different for every seed."""
    rows = [
        (asked, variant, 8e-3, seed, *(of.get((asked, variant), low) + 0.004 * seed for of, low in (
            (recall, 0.03), (check, 0.48))), 0.5, 0.5)
        for asked in ASKED for variant in VARIANTS for seed in range(8)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns="asked variant lr seed recall check true false".split())


def verdicts(recall, check):
    return [claim.verdict for claim in judged(Checker().claims(table(recall, check), "laptop"))]


def test_every_variant_is_tuned_and_trained_on_both_tasks():
    planned = Checker().runs("laptop")
    found = {(run.curve, run.config.lr, run.config.seed) for run in planned}
    names = {label(variant, asked) for variant in VARIANTS for asked in ASKED}
    assert found == {(name, lr, seed) for name in names for lr in RATES for seed in (100, 101)}
    assert len({run.config.digest for run in planned}) == len(planned)
    for run in planned:
        assert run.curve == label(ATTENTION_LABELS[run.config.model.attention], run.config.task.asked)
        assert run.config.model.n_layers == 1


def test_verdicts_can_come_out_either_way():
    of_equations = {
        "recall": {("second", V_ONLY): 0.9, ("second", KV): 0.9, ("first", K_ONLY): 0.9, ("first", KV): 0.9},
        "check": {("second", V_ONLY): 0.9, ("second", KV): 0.9, ("first", K_ONLY): 0.9, ("first", KV): 0.9},
    }
    assert verdicts(**of_equations) == ["holds"] * len(COMPARISONS)
    other = {(asked, variant): 0.9 for asked in ASKED for variant in (VANILLA, K_ONLY)}
    swapped = {("second", VANILLA): 0.9, ("second", K_ONLY): 0.9, ("second", V_ONLY): 0.7,
               ("first", VANILLA): 0.9, ("first", V_ONLY): 0.9}  # fmt: skip
    assert verdicts(swapped, swapped) == ["fails"] * len(COMPARISONS)
    assert verdicts(other, other)[3] == "fails"


def test_what_neither_learns_is_not_compared():
    assert verdicts({}, {}) == ["not tested at this scale"] * len(COMPARISONS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The tuning runs of the smoke scale, and one run of each variant at its rate."""
    root, study = tmp_path_factory.mktemp("runs"), Checker()
    tuning = [(plan.curve, train(plan.config, root)) for plan in study.runs("smoke")]
    planned = [plan for plan in study.follow(tuning, "smoke") if plan.config.seed == 0]
    return tuning, [(plan.curve, train(plan.config, root)) for plan in planned]


def test_gather_reads_the_last_evaluation_and_leaves_tuning_out(trained):
    tuning, judged_runs = trained
    data = Checker().gather([*tuning, *judged_runs], "smoke")
    assert len(data) == len(judged_runs) == 8
    for curve, run in judged_runs:
        variant, asked = curve.split(" | ")
        last = run.metrics.iloc[-1]
        true, false = last[f"accuracy_question_{TRUE}"], last[f"accuracy_question_{FALSE}"]
        assert accuracies(data, asked, "check", variant) == pytest.approx([(true + false) / 2], abs=1e-5)
        assert accuracies(data, asked, "recall", variant) == pytest.approx(
            [last[f"accuracy_question_{RECALL}"]], abs=1e-5
        )


def test_the_picture_and_the_summary_follow_from_the_table():
    data = table({("second", V_ONLY): 0.9}, {("first", K_ONLY): 0.8})
    left, right = Checker().draw(data, "laptop").axes
    assert [list(line.get_ydata()) for line in left.get_lines()[:2]] == [
        accuracies(data, "second", what, VANILLA) for what in ("recall", "check")
    ]
    assert len(right.get_lines()) == 2 * len(VARIANTS) + 1
    assert f"{V_ONLY} 0.91 and 0.49" in Checker().summary(data, "laptop")
    assert f"{K_ONLY} 0.04 and 0.81" in Checker().summary(data, "laptop")
