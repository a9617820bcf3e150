"""Circuits that are written into the weights: read from the weights, found by exact patching, and
where it fails.
"""

import pytest

from ihlab import suite
from ihlab.attribution import exact
from ihlab.attribution.circuits import shapley
from ihlab.suite.constructed import HAND_SET
from ihlab.suite.worst import worst_ablation

SLOW = pytest.mark.slow
PLAIN = [name for name in HAND_SET if name not in ("hand-set-4-hop", "hand-set-1-hop-thirds")]


def problem_of(name):
    model = suite.load(name)
    return suite.problem(model, hops=getattr(model.trained_on, "max_hops", None))


@pytest.mark.parametrize("name", [*PLAIN, pytest.param("hand-set-4-hop", marks=SLOW)])
def test_exact_patching_finds_the_heads_that_were_built(name):
    p = problem_of(name)
    effects = exact(p, "head")
    true = effects[effects[["effect", "reverse"]].abs().max(axis=1) >= 0.1 * p.swing]
    found = set(true[["layer", "head"]].itertuples(index=False, name=None))
    assert found == HAND_SET[name].nodes("head")
    halves = effects.query("layer == 0")["fraction"] if name.endswith("split") else []
    assert list(halves) == pytest.approx([0.5] * len(halves), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["hand-set-kv-shift", pytest.param("hand-set-2-hop-rotated", marks=pytest.mark.rare)],
)
def test_the_truth_of_inputs_and_edges_is_what_was_built(name):
    """Up to effects at the threshold of .1: in one prompt of ten the changed token is also one that
    a head reads its value from.
    """
    facts = suite.truth(name)
    assert facts["accuracy"]["accuracy"] == 1
    for kind in facts.keys() & {"heads", "inputs", "edges"}:
        table = facts[kind]
        largest = table[["fraction", "reverse_fraction"]].abs().max(axis=1)
        clear = table[(largest - 0.1).abs() > 0.01]
        assert (clear["built"] == clear["true"]).all(), kind
        assert len(clear) >= len(table) - 1
    assert facts["built"]["does"].str.len().min() > 20
    assert facts["worst_ablation"]["faithfulness"] == pytest.approx(1, abs=0.01)
    if "edges" in facts:  # three layers: few prompts, with intervals
        assert facts["edges"].eval("low <= effect <= high").all()


@pytest.mark.usefixtures("few_prompts")
def test_of_three_copies_exact_patching_finds_none_and_the_circuit_fails_without_two():
    """The output is a vote: a third of it changes nothing. Shapley values are those of the vote, in
    closed form.
    """
    p = problem_of("hand-set-1-hop-thirds")
    effects, built = exact(p, "head"), HAND_SET["hand-set-1-hop-thirds"].nodes("head")
    first = effects.query("layer == 0")[["fraction", "reverse_fraction"]]
    assert first.abs().to_numpy().max() < 0.001
    true = effects["fraction"].to_numpy() > 0.1
    assert true.sum() == 1
    facts = worst_ablation(p, true)
    assert facts["faithfulness"] == pytest.approx(0, abs=0.001)
    assert len({(0, 0), (0, 2), (0, 3)} & {tuple(head) for head in facts["ablated"]}) >= 2
    assert (facts["sets"], facts["sampled"]) == (128, False)
    values = shapley(p).set_index(["layer", "head"])["shapley"]
    right = {head: 1 / 6 if head[0] == 0 else 1 / 2 for head in built}
    assert values.to_dict() == pytest.approx(dict.fromkeys(values.index, 0.0) | right, abs=0.001)
