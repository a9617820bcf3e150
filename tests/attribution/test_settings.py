"""Corruptions, metrics and truths by name, from their definitions; and the standard set."""

from importlib import import_module

import pytest
import torch

from ihlab import Run, suite
from ihlab.attribution import attribute, compare, exact, problem
from ihlab.attribution.circuits import circuits
from ihlab.attribution.metrics import METRICS
from ihlab.attribution.noise import NOISE
from ihlab.attribution.problems import CORRUPTIONS
from ihlab.interp.prompt_pair import prompt_pair
from ihlab.suite import standard
from ihlab.suite.truth import prompts
from tasks import ConfigError, InductionTask, MQARTask, MultiHopTask

TASKS = [
    InductionTask(vocab_size=60, length=24),
    MQARTask(vocab_size=64, length=64),
    MultiHopTask(vocab_size=60, length=40, max_hops=2, alphabet=50),
]


@pytest.fixture(scope="module")
def run():
    return Run.open("vanilla-2-layers")


@pytest.mark.parametrize("task", TASKS)
def test_absent_and_resample_replace_a_token_or_the_prompt(task):
    """By a token that is nowhere in the prompt, and by a prompt with another answer."""
    key, pair, other = (prompt_pair(task, 20, 3, how) for how in ("key", "absent", "resample"))
    assert pair.clean.equal(key.clean)
    assert other.clean.equal(key.clean)
    assert pair.other.equal(key.other)
    rows, changed = (pair.clean != pair.corrupted).nonzero(as_tuple=True)
    assert rows.tolist() == list(range(20))
    assert changed.equal(pair.earlier)
    assert (changed < pair.position).all()
    assert not (pair.corrupted[rows, changed][:, None] == pair.clean).any()
    assert (other.answer != other.other).all()
    known = dict(zip(map(tuple, key.clean.tolist()), key.answer.tolist(), strict=True))
    assert [known[tuple(row)] for row in other.corrupted.tolist()] == other.other.tolist()


def test_a_prompt_with_every_token_has_no_absent_one():
    task = MultiHopTask(vocab_size=60, length=40, max_hops=2, alphabet=4)
    with pytest.raises(ConfigError, match="holds every token that could replace one"):
        prompt_pair(task, size=5, corrupt="absent")


@pytest.mark.parametrize("corrupt", NOISE)
def test_noise_is_added_to_the_embedding_of_the_earlier_occurrence(run, corrupt):
    size, p = 64, problem(run, corrupt=corrupt)
    model, pair = run.model(), prompt_pair(run.config.task, size, 0, "key")
    before, after = (p.model.embed(tokens).detach() for tokens in (p.clean, p.corrupted))
    changed = (before != after).any(dim=-1)
    assert changed.nonzero()[:, 1].equal(pair.earlier)
    scale = (after - before)[changed].std() / model.embed.weight.std()
    assert scale.item() == pytest.approx(NOISE[corrupt], rel=0.1)
    hook = [("hook_embed", lambda x, hook: after)]
    with torch.no_grad():
        expected = pair.logit_differences(model.run_with_hooks(pair.clean, fwd_hooks=hook))
    torch.testing.assert_close(p.ends[1], expected)
    assert problem(run).swing > p.swing > 0


def test_metrics_are_what_they_are_named(run):
    pair, model, rows = prompt_pair(run.config.task, 8, 0, "key"), run.model(), range(8)
    problems = {name: problem(run, size=8, metric=name) for name in METRICS}
    for end, tokens in enumerate((pair.clean, pair.corrupted)):
        with torch.no_grad():
            x, clean = (model(each)[rows, pair.position] for each in (tokens, pair.clean))
        p, clean = (torch.exp(each) / torch.exp(each).sum(1, keepdim=True) for each in (x, clean))
        expected = {
            "logit": x[rows, pair.answer],
            "logit-difference": x[rows, pair.answer] - x[rows, pair.other],
            "probability": p[rows, pair.answer],
            "log-probability": torch.log(p[rows, pair.answer]),
            "kl": (clean * torch.log(clean / p)).sum(dim=1),
        }
        for name in METRICS:
            measured = problems[name].ends[end]
            torch.testing.assert_close(measured, expected[name], rtol=1e-4, atol=1e-4)


def test_either_direction_can_be_the_truth(run):
    p = problem(run, corrupt="resample", size=16)
    table, found = exact(p), attribute(p)["effect"].abs()
    for truth in ("effect", "reverse"):
        rank = compare(p, ["attribution-patching", "exact"], truth=truth)["rank_correlation"]
        for i, size in enumerate((found, table["effect"].abs())):
            assert rank[i] == pytest.approx(size.corr(table[truth].abs(), method="spearman"))
    with pytest.raises(ConfigError, match="There is no truth 'revers'; did you mean 'reverse'"):
        compare(p, truth="revers")


# Numbers that independent code measured


def test_the_setting_decides_which_method_sees_the_previous_token_head(run):
    """Estimated / exact, by independent code on prompts of its own."""
    methods = ("attribution-patching", "frozen-norms", "eap-ig")
    seen = {
        ("key", "logit-difference"): (0.03, 0.44, 0.58),
        ("absent", "logit"): (0.24, 0.17, 0.71),
    }
    for (corrupt, metric), fractions in seen.items():
        p = problem(run, corrupt=corrupt, metric=metric, size=128)
        effect = exact(p)["effect"]
        assert effect.idxmax() == 1
        found = [attribute(p, method)["effect"][1] / effect[1] for method in methods]
        assert found == pytest.approx(fractions, abs=0.06)


def test_circuits_of_many_nodes_are_refused(run, monkeypatch):
    p = problem(run, size=8)
    monkeypatch.setattr("ihlab.attribution.circuits.MOST_NODES", 4)
    with pytest.raises(
        ConfigError, match="The model has 8 heads, but all circuits can be measured of at most 4"
    ):
        circuits(p)


# The standard set


def test_the_standard_set_has_every_setting_and_its_digests():
    table = standard.standard_set()
    assert set(table["metric"]) == set(METRICS)
    assert set(table["corruption"]) == set(CORRUPTIONS)
    assert not table.duplicated(["member", "step", "corruption", "metric"]).any()
    shipped = suite.models().query("seeds != ''")["name"]
    assert set(table["member"]) <= set(shipped)
    assert set(table.loc[table["layers"] > 2, "layers"]) == {3, 4}
    for row in table[table["metric"] == "kl"].itertuples():
        # A changed task or corruption needs a new version.
        model = suite.load(row.member, step=row.step)
        digest = standard.digest_of(model, prompts(model.trained_on, row.corruption))
        assert digest == row.digest, row
    p = standard.standard_problems(row.member, row.step, row.corruption)["kl"]
    assert p.ends[0].abs().max() < 1e-4


def test_another_problem_is_not_in_the_standard_set(monkeypatch):
    with pytest.raises(ConfigError, match="The standard set has no problem"):
        standard.standard_problems("induction-vanilla-2", 2001, "key")
    monkeypatch.setattr(import_module("ihlab.suite.truth"), "SEED", 1)
    with pytest.raises(ConfigError, match="numbers cannot be compared"):
        standard.standard_problems("induction-vanilla-2", 2000, "key")
