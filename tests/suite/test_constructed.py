"""Circuits that are written into the weights: read from the weights, found by exact patching, and
where it fails.
"""

import pytest
import torch

from ihlab import suite
from ihlab.attribution import exact
from ihlab.attribution.circuits import shapley
from ihlab.suite.attends import attention_to_positions
from ihlab.suite.constructed import HAND_SET
from ihlab.suite.worst import worst_ablation

PLAIN = [name for name in HAND_SET if not name.endswith("thirds")]
DEEP = [pytest.param(name, marks=pytest.mark.slow) if "4-hop" in name else name for name in PLAIN]


def problem_of(name):
    model = suite.load(name)
    return suite.problem(model, hops=getattr(model.trained_on, "max_hops", None))


@pytest.mark.parametrize("name", DEEP)
def test_exact_patching_finds_the_heads_that_were_built(name):
    p = problem_of(name)
    effects = exact(p, "head")
    true = effects[effects[["effect", "reverse"]].abs().max(axis=1) >= 0.1 * p.swing]
    assert set(true[["layer", "head"]].itertuples(index=False, name=None)) == HAND_SET[name].nodes(
        "head"
    )
    table = HAND_SET[name].table()
    assert set(table[["layer", "head", "input"]].itertuples(index=False, name=None)) == HAND_SET[
        name
    ].nodes("input")
    halves = effects.query("layer == 0")["fraction"] if name.endswith("split") else []
    assert list(halves) == pytest.approx([0.5] * len(halves), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["hand-set-two-layers-noise", "hand-set-kv-shift", "hand-set-2-hop-rotated"]
)
def test_the_truth_of_inputs_and_edges_is_what_was_built(name):
    facts = suite.truth(name)
    assert facts["accuracy"]["accuracy"] == 1
    for kind in ("heads", "inputs", "edges")[: 2 + ("edges" in facts)]:
        assert (facts[kind]["built"] == facts[kind]["true"]).all(), kind
    assert facts["built"]["does"].str.len().min() > 20
    assert facts["worst_ablation"]["faithfulness"] == pytest.approx(1, abs=0.01)
    if name == "hand-set-2-hop-rotated":
        assert facts["edges"].eval("low <= effect <= high").all(), (
            "three layers: few prompts, with intervals"
        )


@torch.no_grad()
@pytest.mark.parametrize(
    "name", [name for name in HAND_SET if "noise" not in name and "thirds" not in name]
)
def test_every_edge_is_a_product_of_weights(name):
    """An edge that was built has W_V W_O W_input != 0. Two layers have no other."""
    model, edges = suite.load(name), HAND_SET[name].nodes("edge")
    reads = {"q": model.W_Q, "k": model.W_K, "v": model.W_V}
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    ends = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    joined = {
        (*sender, *receiver, kind)
        for sender in ends
        for receiver in ends
        for kind, weight in reads.items()
        if sender[0] < receiver[0]
        and (model.W_V[sender] @ model.W_O[sender] @ weight[receiver]).norm() > 1e-3
    }
    assert edges <= joined
    assert ("two-layers" not in name) or edges == joined


@pytest.mark.usefixtures("few_prompts")
def test_of_three_copies_exact_patching_finds_none_and_the_circuit_fails_without_two():
    """The output is a vote: a third of it changes nothing. Shapley values are those of the vote, in
    closed form.
    """
    p = problem_of("hand-set-1-hop-thirds")
    effects, built = exact(p, "head"), HAND_SET["hand-set-1-hop-thirds"].nodes("head")
    assert (
        effects.query("layer == 0")[["fraction", "reverse_fraction"]].abs().to_numpy().max() < 0.001
    )
    true = effects["fraction"].to_numpy() > 0.1
    assert true.sum() == 1
    facts = worst_ablation(p, true)
    assert facts["faithfulness"] == pytest.approx(0, abs=0.001)
    assert len({(0, 0), (0, 2), (0, 3)} & {tuple(head) for head in facts["ablated"]}) >= 2
    assert (facts["sets"], facts["sampled"]) == (128, False)
    values = shapley(p).set_index(["layer", "head"])["shapley"]
    right = {head: 1 / 6 if head[0] == 0 else 1 / 2 for head in built}
    assert values.to_dict() == pytest.approx(dict.fromkeys(values.index, 0.0) | right, abs=0.001)


def test_attention_is_named():
    pair = problem_of("hand-set-two-layers").metric.pair
    model = suite.load("hand-set-two-layers")
    table = attention_to_positions(model, pair)
    _, cache = model.run_with_cache(pair.clean)
    for row, position in zip(
        table.itertuples(), (pair.position - 1, pair.earlier + 1), strict=True
    ):
        weight = (
            cache["pattern", row.layer][range(64), row.head, pair.position, position].mean().item()
        )
        name = ("previous", "after")[row.layer]
        assert getattr(row, name) == pytest.approx(weight)
        assert weight > 0.99
