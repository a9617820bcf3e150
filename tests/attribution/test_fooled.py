"""Scores that cannot be fooled: methods that know nothing or change what others get, and problems
that change.
"""

from dataclasses import replace
from itertools import pairwise, permutations
from unittest.mock import patch

import numpy as np
import pytest
import torch

from ihlab import Run, suite
from ihlab.attribution import METHODS, attribute, compare, exact, problem, register_method
from ihlab.attribution.circuits import Faithfulness, circuits, orders
from ihlab.attribution.problems import pair_problem
from ihlab.attribution.scores import CONTROLS, expected_recall
from tasks import ConfigError
from tests.attribution.random_model import random_llama, random_problem

# Methods that know nothing


@pytest.mark.parametrize(
    "estimate", [[0, 0, 0, 0, 0], [2, 1, 1, 1, 0], [1, 1, 0, 0, 3], [5, 4, 3, 2, 1]]
)
@pytest.mark.parametrize("true", [[1, 0, 0, 0, 0], [1, 1, 0, 0, 1], [0, 0, 0, 1, 1]])
def test_recall_is_the_mean_over_all_orders_of_ties(estimate, true):
    size, true = np.array(estimate, dtype=float), np.array(true, dtype=bool)
    falling = []
    for order in permutations(range(5)):
        if all(size[a] >= size[b] for a, b in pairwise(order)):
            falling.append(list(order))
    found = [true[order[: true.sum()]].mean() for order in falling]
    assert expected_recall(size, true) == pytest.approx(np.mean(found))
    assert sorted(orders(-size)) == falling


def test_circuits_of_equal_estimates_are_any_of_their_size():
    p = suite.problem(suite.load("recall-attention-only-2"))
    _, curves = Faithfulness(p).curves(np.zeros(4))
    by_size = circuits(p).groupby("size")["faithfulness"].mean()
    np.testing.assert_allclose(curves.mean(axis=0), by_size)
    found = compare(p, ["exact"]).set_index("method")
    assert set(CONTROLS) < set(found.index)
    assert found.loc["constant", "cpr"] == pytest.approx(np.trapezoid(by_size, dx=1 / 4))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@patch.dict(METHODS)
def test_estimates_that_are_not_finite_are_refused_and_others_are_scored(wrong):
    def broken(p, nodes):
        found = torch.zeros(len(p.clean), len(p.nodes(nodes)))
        found[0, 1] = wrong
        return found

    register_method("broken")(broken)
    p = random_problem()
    said = "The method 'broken' returned NaN or infinite estimates for 1 of 6 nodes"
    with pytest.raises(ConfigError, match=said):
        attribute(p, "broken")
    found = compare(p, ["broken", "exact"]).set_index("method")
    assert found.loc["broken", "note"].startswith(said)
    assert np.isnan(found.loc["broken", "cpr"])
    assert found.loc["exact", "rank_correlation"] == 1


def test_an_untrained_model_has_no_true_head():
    run = Run.open("vanilla-2-layers")
    p = problem(run.model(90))
    assert not p.answered
    assert np.isnan(compare(p, ["exact"]).loc[0, "recall"])
    assert problem(run).answered


def test_shuffled_answers_are_hardly_ever_taken_for_answers():
    """One shuffle in 201 would be by chance."""
    model = suite.load("recall-attention-only-2")
    pair, generator = suite.problem(model).metric.pair, torch.Generator().manual_seed(7)
    accepted = []
    for _ in range(10):
        order = torch.randperm(len(pair.answer), generator=generator)
        shuffled = replace(pair, answer=pair.answer[order], other=pair.other[order])
        accepted.append(pair_problem(model, shuffled).answered)
    assert sum(accepted) <= 1


def test_the_metric_turned_round_changes_no_score():
    p = problem(Run.open("vanilla-2-layers"), size=8)
    turned = problem(
        p.model, clean=p.clean, corrupted=p.corrupted, metric=lambda logits: -p.metric(logits)
    )
    methods = ["exact", "attribution-patching", "zero-ablation", "head-scores"]
    tables = [compare(each, methods).loc[:3, "rank_correlation":"regret"] for each in (p, turned)]
    np.testing.assert_allclose(*(table.to_numpy(dtype=float) for table in tables), atol=1e-6)


# Methods that change what others get


def _left(p, nodes):
    return torch.ones(len(p.clean), len(p.nodes(nodes)))


def _zero_prompts(p, nodes):
    p.clean.zero_()
    return _left(p, nodes)


def _zero_metric(p, nodes):
    p.metric.pair.answer.zero_()
    return _left(p, nodes)


@torch.no_grad()
def _halve(p, nodes):
    for weight in p.model.module.parameters():
        weight.data.mul_(0.5)
    return _left(p, nodes)


SPOILS = (_zero_prompts, _zero_metric, _halve)


@pytest.mark.parametrize("spoils", SPOILS)
@patch.dict(METHODS)
def test_one_method_cannot_spoil_the_next(spoils):
    """It gets a copy, and torch's random generator is as before."""
    p = random_problem()
    before, numbers = compare(p, ["exact", "eap-ig"]), torch.get_rng_state()
    register_method("spoils")(lambda given, nodes: (torch.manual_seed(1), spoils(given, nodes))[1])
    after = compare(p, ["spoils", "exact", "eap-ig"])
    assert torch.equal(torch.get_rng_state(), numbers)
    scores = ["rank_correlation", "low", "high", "recall", "cpr", "cmd", "forward", "backward"]
    np.testing.assert_array_equal(before.loc[:1, scores], after.loc[1:2, scores])
    assert (exact(p)["effect"] == exact(random_problem())["effect"]).all()


@pytest.mark.parametrize("spoils", SPOILS)
@patch.dict(METHODS)
def test_a_method_that_reaches_the_original_is_refused(spoils):
    p = random_problem()
    register_method("spoils")(lambda given, nodes: spoils(p, nodes))
    with pytest.raises(ConfigError, match="The method 'spoils' changed what the metric measures"):
        compare(p, ["spoils"])


# Problems that change


def test_a_problem_notices_that_its_model_or_its_prompts_changed():
    p = problem(Run.open("vanilla-2-layers"), size=8)
    weight, first, swing = p.model.module.unembed.weight, exact(p), p.swing
    weight.data.mul_(0.5)  # torch counts no change of data
    fresh = problem(p.model, clean=p.clean, corrupted=p.corrupted, metric=p.metric)
    assert exact(p).equals(exact(fresh))
    assert not exact(p).equals(first)
    weight.data.mul_(2)
    assert exact(p).equals(first)
    p.clean[:4] = p.corrupted[:4]
    assert p.swing == pytest.approx(swing / 2, rel=0.2)
    weight.data.zero_()
    with pytest.raises(ConfigError, match="there is no effect to attribute"):
        exact(p)


def test_the_distance_from_an_output_that_changed_is_refused():
    p = problem(Run.open("vanilla-2-layers"), size=8, metric="kl")
    assert p.ends[0].abs().max() < 1e-5
    p.model.module.unembed.weight.data.mul_(0.5)
    with pytest.raises(ConfigError, match="the metric 'kl' compares with: the model has changed"):
        exact(p)


@pytest.mark.parametrize("infinite", ["clean", "patched"])
def test_a_metric_that_is_not_finite_is_refused(infinite):
    p = random_problem()
    ends = torch.cat(p.ends)

    def metric(logits):
        value = p.metric(logits)
        if infinite == "clean":
            return value / (logits[:, 0, 0] != logits[0, 0, 0])
        new = (value[:, None] - ends).abs().amin(dim=1) > 1e-3
        return torch.where(new, -np.inf, value)

    with pytest.raises(
        ConfigError, match="but must be finite on clean, corrupted and patched prompts"
    ):
        exact(problem(p.model, clean=p.clean, corrupted=p.corrupted, metric=metric))


@pytest.mark.parametrize(
    "mode", [torch.inference_mode, lambda: torch.autocast("cpu"), torch.no_grad]
)
def test_the_callers_modes_change_nothing(mode):
    expected = attribute(random_problem(), "eap-ig")["effect"]
    with mode():
        p = random_problem()
        assert (attribute(p, "eap-ig")["effect"] == expected).all()
        assert compare(p, ["eap-ig"]).loc[0, "backward"] == 5


# Padding


@pytest.mark.slow
@pytest.mark.parametrize("pad", [0, None])
def test_prompts_padded_on_the_left_need_a_mask(pad):
    """With the mask, effects are those of the same prompts without padding, one by one."""
    model = random_llama(bos_token_id=None, eos_token_id=1, pad_token_id=pad)
    generator = torch.Generator().manual_seed(0)
    clean, corrupted = torch.randint(2, 40, (2, 3, 9), generator=generator)
    mask = torch.ones(3, 9).long()
    for row, n in enumerate((0, 2, 4)):
        mask[row, :n] = 0
        clean[row, :n] = corrupted[row, :n] = 1 if pad is None else pad

    def of(clean, corrupted, **mask):
        metric = lambda x: x[:, -1, 7] - x[:, -1, 8]  # noqa: E731
        return problem(model, clean=clean, corrupted=corrupted, metric=metric, **mask)

    with pytest.raises(ConfigError, match="Some prompts begin with padding"):
        of(clean, corrupted)
    p = of(clean, corrupted, attention_mask=mask)
    alone = [of(clean[[i], n:], corrupted[[i], n:]) for i, n in enumerate((0, 2, 4))]
    for method in ("exact", "attribution-patching"):
        effects = [attribute(each, method)["effect"] for each in alone]
        effect = attribute(p, method)["effect"]
        np.testing.assert_allclose(effect, np.mean(effects, axis=0), atol=1e-5)
