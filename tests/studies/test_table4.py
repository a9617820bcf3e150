"""Table 4: verdicts on hits made by hand, and the whole way at smoke scale."""

import io
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.model.config import ModelConfig
from ihlab.studies.table4 import (
    CURVES,
    GUESS,
    IN_TRAINING,
    KV,
    MEASURES,
    PARTS,
    RATES,
    SETTINGS,
    TUNING_SEED,
    VANILLA,
    Table4,
    commonest_answer,
    igsm_run,
    packed,
    problems_like_training,
    unpacked,
)
from tasks.igsm.verify import ERRORS

pytestmark = pytest.mark.slow

[SETTING] = SETTINGS["laptop"]


def table(kv, vanilla, seen=0.8, guess=0.3, problems=400, spread=0.01, strict=None):
    """Five seeds that solve a share of problems with 4 and 5 operations, `seen` of those with fewer, in every sense.

    Problems differ in how hard they are, and are so for every model alike; a seed is off its share by up to 2 `spread`.
    `strict`: another share for "every clause is right" (and needed) of each model, (4 operations, fewer).
    """
    rng = np.random.default_rng(0)
    rows = []
    for ops in SETTING.tested:
        hardness, constant = (rng.permutation(problems) + 0.5) / problems, rng.permutation(problems) < guess * problems
        for model, share in ((KV, kv), (VANILLA, vanilla)):
            for seed in range(5):
                for measure in (*MEASURES, *PARTS):
                    at = share if ops >= SETTING.test else seen
                    if strict and measure in ("strict", "minimal"):
                        at = strict[model][ops < SETTING.test]
                    at += spread * (seed - 2) * (0 < at < 1)
                    rows.append((model, seed, ops, measure, hardness < at))
                    if measure == "strict" and ops == SETTING.train:
                        rows.append((model, seed, ops, IN_TRAINING, hardness < at))
                rows.append((model, seed, ops, GUESS, constant))
                rows += [(model, seed, ops, name, None) for name in (*ERRORS, "unnecessary")]
    data = pd.DataFrame(rows, columns=["model", "seed", "ops", "measure", "hit"])
    data["share"] = [0.5 if hit is None else hit.mean() for hit in data["hit"]]
    data["hits"] = [None if hit is None else packed(hit) for hit in data["hit"]]
    data = data.drop(columns="hit").assign(setting=SETTING.name, problems=problems, kind="run", lr=8e-3, loss=0.1)
    tuned = data[(data["ops"] == SETTING.train) & (data["seed"] == 0)].assign(kind="tuning", seed=TUNING_SEED)
    return pd.concat([data, *(tuned.assign(lr=lr) for lr in RATES["laptop"])], ignore_index=True)


def verdicts(data):
    return [claim.verdict for claim in judged(Table4().claims(data, "laptop"))]


@pytest.mark.parametrize(
    ("kv", "vanilla", "of_the_paper", "more_than_guess"),
    [
        (0.9, 0.7, "holds", ["holds", "holds"]),
        (0.7, 0.9, "fails", ["holds", "holds"]),
        (0.8, 0.8, "undecided", ["holds", "holds"]),
        (0.9, 0.1, "holds", ["fails", "holds"]),  # vanilla comes first
        (0.9, 0.3, "holds", ["undecided", "holds"]),
    ],
)
def test_verdicts(kv, vanilla, of_the_paper, more_than_guess):
    data = table(kv, vanilla)
    claims = Table4().claims(data, "laptop")
    assert verdicts(data) == [of_the_paper] * 4 + ["undecided"] * 3 + [*more_than_guess, "holds", "holds"]
    assert claims[0].estimate.value == pytest.approx(kv - vanilla)
    assert {claim.declared for claim in claims} == {"2026-11-23"}


def test_problems_are_a_sample_too():
    """Seeds that all but agree decide nothing on forty problems, and do on fifteen hundred."""
    assert verdicts(table(0.65, 0.55, problems=40, spread=0.0))[:4] == ["undecided"] * 4
    assert verdicts(table(0.65, 0.55, problems=1500, spread=0.0))[:4] == ["holds"] * 4


def test_where_training_was_not_learned_more_operations_test_nothing():
    data = table(0.5, 0.4, strict={KV: (0.0, 0.4), VANILLA: (0.0, 0.3)})
    claims = Table4().claims(data, "laptop")
    assert verdicts(data) == [NOT_TESTED, "holds", "undecided", "undecided", "holds", "holds", "holds", "holds"]
    assert "more than half of the training split's problems with 3 operations" in claims[0].why
    assert "(KV shifting: 0.400, vanilla: 0.300)" in claims[0].why
    assert "; with 4, which nobody has learned, some step gives the right value" in claims[1].measure
    assert "+0.100 [" in claims[1].measure


def test_a_single_curve_that_has_learned_is_enough():
    data = table(0.5, 0.4, strict={KV: (0.3, 0.51), VANILLA: (0.1, 0.2)})
    assert verdicts(data)[:5] == ["holds"] * 5


@pytest.mark.parametrize("solved", [0.0, 0.05])
def test_what_nobody_solves_compares_nothing_but_counts_among_the_claims(solved):
    data = table(0.5, 0.4, strict={KV: (solved, 0.9), VANILLA: (0.0, 0.8)}, spread=0.0)
    assert verdicts(data)[2:4] == [NOT_TESTED, NOT_TESTED]
    claims = judged(Table4().claims(data, "laptop"))
    assert claims[2].why.startswith("Neither solves problems with 4 operations in this sense (")
    assert claims[2].p_holm is not None
    assert claims[2].first.why == ""
    assert (claims[2].first.measure, claims[2].first.p_holm) == (claims[2].measure, claims[2].p_holm)


def test_fewer_operations_are_judged_apart():
    claims = Table4().claims(table(0.2, 0.1, seen=0.7), "laptop")
    assert claims[4].estimate.value == pytest.approx(0.0)
    assert claims[-1].estimate.value == pytest.approx(0.4)
    assert "1, 2 and 3 operations" in claims[-1].sentence


def test_hits_are_still_text_in_a_stored_table():
    stored = pd.read_csv(io.StringIO(table(0.9, 0.7, problems=40).to_csv(index=False)))
    assert stored["hits"].dropna().str.startswith("0b").all()
    hits = np.array([False, True, True, False])
    assert packed(hits) == "0b0110"
    assert (unpacked("0b0110") == hits).all()


def test_the_constant_answer_is_that_of_other_problems():
    """So that it is not fitted to those it is judged on: their own commonest one is right more often."""
    task = replace(igsm_run("laptop", SETTING).task, difficulty="toy", format="compact", letters="ordered", length=160)
    right = {"own": 0.0, "other": 0.0}
    for seed in range(20):
        problems = task.prompts(20, np.random.default_rng([seed, 2]), 2, "test")
        answers = problems.tokens[np.arange(20), problems.size - 2]
        right["own"] += np.bincount(answers).max() / 20 / 20
        right["other"] += (answers == commonest_answer(task, 160, 2, 4096)).mean() / 20
    assert right["other"] == pytest.approx(0.21, abs=0.05)  # 4096 problems: .2136
    assert right["own"] > right["other"] + 0.05
    assert task.decode(np.array([commonest_answer(task, 160, 2, 4096)]))[0].isdigit()


def test_each_curve_gets_the_rate_with_the_lowest_held_out_loss():
    best = {VANILLA: 4e-3, KV: 8e-3}
    first = Table4().runs("laptop")
    assert {(plan.config.lr, plan.config.seed) for plan in first} == {(lr, TUNING_SEED) for lr in RATES["laptop"]}

    def trained(plan):
        loss = abs(np.log(plan.config.lr / best[plan.curve.split(", ")[0]]))
        metrics = pd.DataFrame({"eval_loss": [0.0, loss]})  # the last one counts
        return plan.curve, SimpleNamespace(config=plan.config, metrics=metrics, diverged=None)

    then = Table4().follow([trained(plan) for plan in first], "laptop")
    assert {(plan.curve.split(", ")[0], plan.config.lr) for plan in then} == set(best.items())
    assert TUNING_SEED not in {plan.config.seed for plan in then}
    assert len({plan.config.name for plan in (*first, *then)}) == len(first) + len(then)


def test_a_run_that_diverged_is_not_chosen_and_other_rates_than_the_grids_may_be_tried():
    """As `ihlab.studies.varied` tries them."""
    first = [replace(plan, config=plan.config.replace(lr=2 * plan.config.lr)) for plan in Table4().runs("laptop")]

    def trained(plan):
        slow = plan.config.lr == 8e-3
        losses = [1.0, 2.0 if slow else np.nan]
        return plan.curve, SimpleNamespace(
            config=plan.config, metrics=pd.DataFrame({"eval_loss": losses}), diverged=None if slow else {"step": 1}
        )

    then = Table4().follow([trained(plan) for plan in first], "laptop")
    assert {plan.config.lr for plan in then} == {8e-3}


@pytest.mark.parametrize("ops", [3, 4, 5])
def test_tested_problems_need_nothing_that_training_lacks_but_their_operations(ops):
    task = igsm_run("laptop", SETTING).task
    problems = problems_like_training(task, 160, ops, 100, 5)
    assert set(problems.ops) == {ops}
    assert len(problems.tokens) == 100
    assert problems.size.max() <= task.length + 1
    trained_on = set(np.unique(task.prompts(4000, np.random.default_rng(0)).tokens))
    assert set(np.unique(problems.tokens)) <= trained_on
    assert len({problem.tobytes() for problem in problems.tokens}) > 95


def test_what_a_solution_needs_of_the_prompt_is_judged_in_parts():
    """Planning that is better by .2 and looking up that is as good."""
    data = table(0.8, 0.6)
    better = (data["measure"] == "planned") & (data["model"] == VANILLA)
    data.loc[better, "hits"] = data.loc[better, "hits"].map(
        lambda hits: packed(unpacked(hits) & (np.arange(400) % 4 > 0))
    )
    planned, looked_up = Table4().claims(data, "laptop")[5:7]
    assert planned.sentence == "KV shifting plans more problems with 2 and 3 operations rightly."
    assert (
        looked_up.sentence
        == "KV shifting looks up all that is stated in more problems with 1, 2 and 3 operations rightly."
    )
    assert planned.estimate.value == pytest.approx(0.2, abs=0.03)
    assert [claim.verdict for claim in judged([planned, looked_up])] == ["holds", "undecided"]


def test_tested_in_steps_up_to_the_most():
    assert list(SETTING.tested) == [1, 2, 3, 4, 5]
    assert [list(setting.tested) for setting in SETTINGS["paper"]] == [[3, 6, 9, 12, 15], [3, 6, 9, 12, 15, 18, 21, 24]]


def test_only_the_attention_differs():
    for scale in SETTINGS:
        plans = [plan for plan in Table4().runs(scale) if plan.config.lr == RATES[scale][0]]
        shapes = {
            (plan.config.replace(name="any", model=plan.config.model.replace(attention="vanilla"))) for plan in plans
        }
        assert len(shapes) == len(SETTINGS[scale])


def test_the_papers_settings():
    assert [setting.name for setting in SETTINGS["paper"]] == ["Tr12-Te15", "Tr21-Te24"]
    for setting in SETTINGS["paper"]:
        run = igsm_run("paper", setting)
        assert (run.model.n_ctx, run.lr, run.task.ops) == (1024, 2e-4, f"<={setting.train}")
        assert RATES["paper"] == (2e-4, 2e-3)  # footnote 14
        assert isinstance(run.model, ModelConfig)


def test_the_whole_way_at_smoke_scale(smoke):
    _, folder = smoke("table4")
    data = folder.data()
    assert set(data["model"]) == set(CURVES)
    assert data[data["kind"] == "run"].groupby("model")["seed"].nunique().eq(2).all()
    assert set(data.loc[data["kind"] == "tuning", "seed"]) == {TUNING_SEED}
    assert set(data["measure"]) == {*MEASURES, GUESS, *PARTS, IN_TRAINING, *ERRORS, "unnecessary", "errors"}
    judged_rows = data[data["measure"].isin([*MEASURES, GUESS, *PARTS, IN_TRAINING])]
    for _, row in judged_rows.iterrows():
        assert len(unpacked(row["hits"])) == 8
        assert unpacked(row["hits"]).mean() == row["share"]
    assert data.loc[~data.index.isin(judged_rows.index), "hits"].isna().all()
    constant = data[data["measure"] == GUESS].groupby("ops")["hits"].nunique()
    assert constant.eq(1).all()  # the same problems for every run
    assert folder.claims()[0]["verdict"] == NOT_TESTED


def test_errors_are_drawn():
    data = table(0.9, 0.7).assign(share=lambda data: 0.69 + 0.01 * data["seed"])
    [axes] = Table4().draw_more(data, "laptop")["errors"].axes
    means = [line.get_xdata() for line in axes.lines if line.get_label() in CURVES]
    assert [list(each) for each in means] == [pytest.approx([71.0] * (len(ERRORS) + 1))] * 2
    ranges = [segment[:, 0] for lines in axes.collections for segment in lines.get_segments()]
    assert ranges == [pytest.approx([69.0, 73.0])] * 2 * (len(ERRORS) + 1)


def test_the_summary_has_every_share():
    data = table(0.5, 0.4, strict={KV: (0.05, 0.6), VANILLA: (0.0, 0.3)}, spread=0.0)
    rows = Table4().summary(data, "laptop").set_index("operations")
    seen, beyond, trained = (rows.loc[ops].tolist()[1:] for ops in ("3", "4", "3, training split"))
    assert seen[:2] == ["0.300", "0.600"]
    assert beyond[:4] == ["0.000", "0.050", "0.400", "0.500"]
    assert beyond[4].startswith("0.3")
    assert trained[:3] == ["0.300", "0.600", ""]
    assert seen[-1] == "vanilla 0.008 (end of the grid), KV shifting 0.008 (end of the grid)"
