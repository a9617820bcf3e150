"""Exact effects and their estimates, against other implementations, closed forms and models by
construction.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from transformer_lens import patching

from ihlab.attribution import METHODS, attribute, compare, exact, problem, register_method
from ihlab.attribution.estimates import examined
from ihlab.attribution.scores import interval
from ihlab.attribution.truth import exact_effects
from ihlab.interp.patching import path_patch
from ihlab.model.conversion import from_llama, to_llama
from ihlab.theory.constructions import two_layer_induction_head
from tasks import ConfigError
from tests.attribution.random_model import TASK, random_llama, random_problem

PLAIN = {"norm": "none", "mlp": "none", "positional": "none"}
"""Attention alone: the metric is linear in what the last layer's heads read."""


@pytest.fixture(scope="module")
def p():
    return random_problem()


@pytest.fixture(scope="module")
def plain():
    return {n_layers: random_problem(n_layers=n_layers, **PLAIN) for n_layers in (1, 2)}


def same(x, y, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=tolerance)


def estimated(p, method, nodes, **options):
    return examined(p, method, nodes, **options)[0]


# The truth


@pytest.mark.parametrize(("column", "sign"), [("effect", 1), ("reverse", -1)])
def test_heads_and_inputs_are_patched_as_transformer_lens_patches_them(p, column, sign):
    of = p if sign == 1 else p.swapped
    _, cache = of.model.module.run_with_cache(of.clean)

    @torch.no_grad()
    def theirs(kind):
        patch = getattr(patching, f"get_act_patch_attn_head_{kind}_all_pos")
        found = patch(of.model.module, of.corrupted, cache, lambda x: of.metric(x).mean())
        return sign * (found - of.ends[1].mean())

    same(exact(p)[column], theirs("out").flatten(), 1e-6)
    inputs = torch.stack(list(map(theirs, "qkv")), dim=-1)
    same(exact(p, "input")[column], inputs.flatten(), 1e-6)


@torch.no_grad()
def test_an_edge_is_a_patched_path(p):
    for row in exact(p, "edge").itertuples():
        ends = (row.from_layer, row.from_head), (row.to_layer, row.to_head), row.input
        patched = p.metric(path_patch(p.model.module, p.corrupted, p.clean, *ends))
        assert row.effect == pytest.approx((patched - p.ends[1]).mean().item(), abs=1e-9)


def test_heads_that_share_keys_are_patched_one_by_one():
    """The oracle has a copy of the keys and values for each head of queries."""
    shared = random_problem(n_heads=4, n_key_value_heads=2, d_head=4)
    apart = random_problem(n_heads=4, d_head=4)
    copied = shared.model.module.state_dict()
    for name, weight in copied.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            copied[name] = weight.unflatten(0, (2, 4)).repeat_interleave(2, dim=0).flatten(0, 1)
        elif ".attn." in name and weight.shape[:1] == (2,):
            copied[name] = weight.repeat_interleave(2, dim=0)
    apart.model.module.load_state_dict(copied)
    apart = problem(apart.model, TASK, size=5)
    for nodes in ("head", "input", "edge"):
        for method in ("exact", "attribution-patching", "eap-ig", "atp-star"):
            same(*(attribute(each, method, nodes)["effect"] for each in (shared, apart)))


CLEAN, CORRUPTED = [[0, 1, 2, 3, 4, 5, 6, 0]], [[3, 1, 2, 0, 4, 5, 6, 0]]
"""The 0 is followed by 1, and in the corrupted prompt by 4."""


def test_the_two_layers_of_theorem_3_2_work_as_they_are_built():
    """Layer 0 writes the past's values wherever it stands; layer 1, all of the output, reads them
    as its keys.
    """
    model = two_layer_induction_head(
        torch.eye(9).double(), 9, sigma=0.05, slope=0.01, first_slope=20.0
    )
    p = problem(
        model,
        clean=CLEAN,
        corrupted=CORRUPTED,
        metric=lambda logits: logits[:, -1, 1] - logits[:, -1, 4],
    )
    assert p.swing == pytest.approx(2, abs=1e-6)
    for column in ("fraction", "reverse_fraction"):
        same(exact(p)[column], [1, 1], 1e-6)
        same(exact(p, "input")[column], [0, 0, 1, 0, 1, 0], 1e-6)
        same(exact(p, "edge")[column], [0, 1, 0], 1e-6)
    # Saturated: first-order patching sees nothing of layer 0.
    assert attribute(p).loc[0, "fraction"] < 1e-6


# The methods


@torch.no_grad()
def directions(p):
    """The direction in the residual stream at each position that raises a prompt's metric: W_U,
    answer minus other.
    """
    pair, found = p.metric.pair, torch.zeros(5, 16, 12).double()
    W_U = p.model.module.W_U
    found[range(5), pair.position] = (W_U[:, pair.answer] - W_U[:, pair.other]).T
    return found


@torch.no_grad()
def written(p, tokens):
    _, cache = p.model.module.run_with_cache(tokens)
    return [cache["result", layer, "attn"] for layer in range(p.model.n_layers)]


@pytest.mark.parametrize(
    "method", ["attribution-patching", "eap-ig", "atp-qk", "atp-star", "atp-edges", "gim"]
)
def test_first_order_is_exact_where_the_metric_is_linear(plain, method):
    if method == "gim":
        pytest.importorskip("gim")
    same(estimated(plain[1], method, "head"), exact_effects(plain[1], "head"))
    last = plain[2].nodes("head")["layer"] == 1
    same(estimated(plain[2], method, "head")[:, last], exact_effects(plain[2], "head")[:, last])


def test_the_query_and_key_correction_is_exact_where_only_a_softmax_is_not_linear(plain):
    plainly = estimated(plain[1], "attribution-patching", "input")
    assert (plainly - exact_effects(plain[1], "input")).abs().max() > 1e-3
    same(estimated(plain[1], "atp-qk", "input"), exact_effects(plain[1], "input"))
    same(estimated(plain[2], "atp-qk", "edge"), exact_effects(plain[2], "edge"))


def test_the_edges_of_a_head_and_its_direct_effect_are_summed(plain):
    p, u = plain[2], directions(plain[2])
    change = written(p, p.clean)[0] - written(p, p.corrupted)[0]
    direct = torch.einsum("bphm,bpm->bh", change, u)
    edges = exact_effects(p, "edge").unflatten(1, (3, -1)).sum(dim=2)
    same(estimated(p, "atp-edges", "head")[:, :3], direct + edges)
    # Gradient dropout has one term for the first of two layers: what does not pass the second.
    same(estimated(p, "atp-star", "head")[:, :3].abs(), direct.abs())


def test_direct_logits_are_what_heads_write_along_the_metrics_direction(plain):
    p = plain[2]
    found = torch.cat(
        [torch.einsum("bphm,bpm->bh", x, directions(p)) for x in written(p, p.clean)], dim=1
    )
    same(estimated(p, "direct-logit-attribution", "head"), found)
    embedded = torch.einsum("bpm,bpm->b", p.model.module.W_E[p.clean].detach(), directions(p))
    same(found.sum(dim=1) + embedded, p.ends[0])
    same(
        estimated(plain[1], "activation-gradient", "head"),
        estimated(plain[1], "direct-logit-attribution", "head"),
    )


@pytest.mark.parametrize("nodes", ["head", "input", "edge"])
def test_one_step_of_integrated_gradients_is_attribution_patching_of_the_other_direction(p, nodes):
    same(
        attribute(p, "eap-ig", nodes, steps=1)["effect"],
        -attribute(p.swapped, nodes=nodes)["effect"],
    )


def from_embeddings(p, x, *hooks):
    return p.model.module.run_with_hooks(x, start_at_layer=0, fwd_hooks=list(hooks))


def line(p):
    clean, corrupted = (p.model.module.W_E[tokens] for tokens in (p.clean, p.corrupted))
    return [corrupted + k / 3 * (clean - corrupted) for k in (1, 2, 3)]


def descent(p):
    """Five steps of length 1 for each prompt, towards the corrupted output."""
    points, goal = [p.model.module.W_E[p.clean]], p.model.module(p.corrupted).detach()
    for _ in range(5):
        x = points[-1].detach().requires_grad_()
        [slope] = torch.autograd.grad((from_embeddings(p, x) - goal).square().sum(), x)
        points.append(x - slope / slope.square().sum((1, 2), keepdim=True).sqrt())
    return points[1:]


@pytest.mark.parametrize(
    ("method", "path", "options"), [("eap-ig", line, {"steps": 3}), ("eap-gp", descent, {})]
)
def test_gradients_are_averaged_along_a_path_of_embeddings(p, method, path, options):
    """Written out with plain torch."""
    slopes, ends = [], []
    for x in path(p):
        z = []
        logits = from_embeddings(
            p, x, (lambda name: name.endswith("hook_z"), lambda x, hook, z=z: z.append(x))
        )
        slopes.append(torch.stack(torch.autograd.grad(p.metric(logits).sum(), z)))
    for tokens in (p.clean, p.corrupted):
        _, cache = p.model.module.run_with_cache(tokens)
        ends.append(torch.stack([cache["z", layer] for layer in range(2)]))
    effects = ((ends[0] - ends[1]) * torch.stack(slopes).mean(dim=0)).sum(dim=(2, 4)).mean(dim=1)
    same(attribute(p, method, **options)["effect"], effects.detach().flatten())


def test_integrated_gradients_along_a_head_are_its_exact_effect(p):
    """By the fundamental theorem of calculus; the midpoint rule has an error of order 1 / steps^2."""
    right = exact_effects(p, "head")
    few, many = (
        estimated(p, "integrated-gradients", "head", steps=steps) - right for steps in (4, 40)
    )
    assert many.abs().max() < 2e-3 * right.abs().max()
    assert many.abs().sum() < few.abs().sum() / 30


@torch.no_grad()
def test_an_ablation_replaces_one_head(p):
    for row in attribute(p, "zero-ablation").itertuples():
        hook = partial(torch.index_fill, dim=2, index=torch.tensor([row.head]), value=0)
        name = f"blocks.{row.layer}.attn.hook_z"
        logits = p.model.module.run_with_hooks(
            p.clean, fwd_hooks=[(name, lambda z, hook, zero=hook: zero(z))]
        )
        assert row.effect == pytest.approx((p.ends[0] - p.metric(logits)).mean().item(), abs=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_transformer_lens_finds_the_same_first_order_effects():
    from transformer_lens.model_bridge.sources import build_bridge_from_module
    from transformer_lens.tools.analysis import attribution_patching as theirs

    p = random_problem(attention="vanilla", positional="rope", d_head=4)
    p = problem(p.model.module.float(), TASK, size=1)
    llama = to_llama(p.model.module)
    bridge = build_bridge_from_module(llama, type(llama).__name__, hf_config=llama.config).eval()
    config = theirs.EdgeAttributionConfig(granularity="edge")
    result = theirs.attribution_patch(
        bridge, p.clean, p.corrupted, lambda logits: p.metric(logits)[0], config
    )
    found = defaultdict(float)  # over positions
    for (writer, reader), score in result.edge_scores.items():
        kind = reader.kind.removesuffix("_input")
        found[writer.layer, writer.head, reader.layer, reader.head, kind] += score
    for *edge, effect, _ in attribute(p, nodes="edge").itertuples(index=False):
        assert found[tuple(edge)] == pytest.approx(effect, abs=1e-5)


def test_inputs_and_edges_of_a_llama_are_those_of_its_conversion():
    llama = random_llama(num_hidden_layers=3, num_key_value_heads=2)
    theirs = problem(llama, TASK, size=4)
    ours = problem(from_llama(llama, n_ctx=TASK.length), TASK, size=4)
    for nodes in ("input", "edge"):
        right = exact(ours, nodes)
        same(exact(theirs, nodes)[["effect", "reverse"]], right[["effect", "reverse"]], 1e-5)
        some = exact(theirs, nodes, layers=[2, 1])
        same(some["effect"], right.loc[some.index, "effect"], 1e-5)
        assert set(some.filter(like="layer").to_numpy().flatten()) == {1, 2}
        for method in ("attribution-patching", "eap-ig"):
            same(*(attribute(each, method, nodes)["effect"] for each in (theirs, ours)), 1e-5)
    assert compare(theirs, ["attribution-patching"], nodes="input")["cpr"].isna().all()
    with pytest.raises(ConfigError, match=r"layers is \[2\], but must have two layers from 0 to 2"):
        exact(theirs, "edge", layers=[2])
    with pytest.raises(
        ConfigError, match="which has no hook points for this: use another method, or convert it"
    ):
        attribute(theirs, "atp-star", "edge")


def test_frozen_weights_and_gradients_are_left_alone(p):
    free = attribute(p)["effect"]
    assert all(weight.grad is None for weight in p.model.module.parameters())
    p.model.module.requires_grad_(requires_grad=False)
    same(attribute(p)["effect"], free, 0)
    p.model.module.requires_grad_()


# The scores


def test_exact_patching_agrees_with_itself(p):
    found = compare(p, ["exact", "random"]).iloc[0]
    assert found[["rank_correlation", "low", "high", "relative"]].tolist() == [1, 1, 1, 1]
    assert found["cpr_gap"] == 0
    assert (found["forward"], found["backward"]) == (7, 0)  # six heads, and the clean activations
    passes = compare(p, ["attribution-patching", "eap-ig"]).loc[:1, ["forward", "backward"]]
    assert passes.to_numpy().tolist() == [[2, 1], [7, 5]]


def test_the_interval_is_over_prompts():
    """Two nodes whose order is that of every prompt have one order; one whose order differs by
    prompt, any.
    """
    truth = torch.tensor([[3.0, 1.0, 0.0]] * 8)
    assert interval(truth, truth) == {"low": 1, "high": 1}
    mixed = torch.tensor([[3.0, 1.0, 0.0], [1.0, 3.0, 0.0]] * 4)
    assert interval(mixed, truth) == {"low": 0.5, "high": 1}
    assert interval(torch.ones(8, 3), truth) == {"low": 0, "high": 0}


# A stranger's method, and bad input


@patch.dict(METHODS)
def test_a_strangers_table_is_taken_in_any_order(p):
    @register_method("mine")
    def mine(p, nodes, factor=2.0):
        return p.nodes(nodes).assign(effect=factor * exact(p, nodes)["effect"])[::-1]

    for nodes in ("head", "edge"):
        same(attribute(p, "mine", nodes, factor=3.0)["effect"], 3 * exact(p, nodes)["effect"])
    assert compare(p, ["mine"]).loc[0, "rank_correlation"] == pytest.approx(1)
    with pytest.raises(ConfigError, match="'mine' is registered already"):
        register_method("mine")(lambda p, nodes: None)
    with pytest.raises(
        ConfigError, match="There is no option of mine 'factors'; did you mean 'factor'"
    ):
        attribute(p, "mine", factors=1)


RETURNED = {
    "returned 5 rows, but must return": lambda p: p.nodes("head")[1:].assign(effect=1.0),
    "has no column effect": lambda p: p.nodes("head"),
    r"returned \[6\], but must return \[5, 6\]: \[prompt, node\]": lambda p: torch.zeros(6),
}


@pytest.mark.parametrize(("said", "table"), RETURNED.items())
@patch.dict(METHODS)
def test_a_method_that_returns_other_nodes_is_refused(p, said, table):
    register_method("mine")(lambda p, nodes: table(p))
    with pytest.raises(ConfigError, match=f"method 'mine' {said}"):
        attribute(p, "mine")


OWN = {
    "clean": torch.zeros(2, 4).long(),
    "corrupted": torch.ones(2, 4).long(),
    "metric": lambda x: x[:, -1, 0],
}
WRONG = [
    (
        {**OWN, "metric": lambda x: x.mean()},
        r"The metric returns \[\], but must return one number per prompt: \[2\]",
    ),
    (
        {**OWN, "corrupted": torch.ones(2, 5).long()},
        r"corrupted prompts are \[2, 5\], but the clean ones are \[2, 4\]",
    ),
    (
        {**OWN, "corrupted": OWN["clean"]},
        "on clean and on corrupted prompts: there is no effect to attribute",
    ),
    ({"clean": OWN["clean"]}, "Only clean is given, but clean, corrupted and metric are needed"),
    ({}, "The task of the Transformer is unknown"),
    ({"task": TASK, "corrupt": "values"}, "There is no corruption 'values'"),
]


def test_a_metric_without_a_gradient_has_exact_effects_only(p):
    right = problem(
        p.model, clean=p.clean, corrupted=p.corrupted, metric=lambda x: x.argmax(-1)[:, -1].double()
    )
    assert exact(right)["effect"].notna().all()
    with pytest.raises(ConfigError, match="The metric has no gradient, which this method needs"):
        attribute(right)


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_wrong_problem_is_refused(p, given, said):
    with pytest.raises(ConfigError, match=said):
        problem(p.model.module, **given)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda p: exact(p, "heads"), "There is no nodes 'heads'; did you mean 'head'"),
        (lambda p: attribute(p, "eap"), "There is no method 'eap'; did you mean 'eap-ig'"),
        (
            lambda p: attribute(p, "eap-ig", steps=0),
            "steps is 0, but must be an integer of at least 1",
        ),
        (lambda p: attribute(p, "head-scores", "edge"), "scores heads only, not nodes='edge'"),
        (
            lambda p: exact(random_problem(n_layers=1), "edge"),
            "1 layer, but an edge between heads needs at least 2",
        ),
    ],
)
def test_a_wrong_question_is_refused(p, ask, said):
    with pytest.raises(ConfigError, match=said):
        ask(p)


def test_without_names_a_method_that_cannot_answer_says_why():
    small = random_problem(size=2, n_layers=1, n_heads=1)
    found = compare(small, nodes="input").set_index("method")
    assert found.loc["head-scores", "note"].startswith("The method 'head-scores' scores heads only")
    assert found.loc["attribution-patching", "note"] == ""


def test_tensors_made_in_inference_mode_are_named(p):
    with torch.inference_mode():
        index = torch.zeros(5, 1, dtype=torch.int64)
    metric = lambda logits: logits[:, -1].gather(1, index)[:, 0]  # noqa: E731
    with pytest.raises(ConfigError, match=r"made in torch\.inference_mode"):
        attribute(replace(p, metric=metric))


def test_integrated_gradients_are_refused_where_ids_are_read_twice():
    """Embeddings of each layer (Gemma 4) do not move with the token embedding."""
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig

    torch.manual_seed(0)
    config = Gemma4TextConfig(
        vocab_size=40,
        vocab_size_per_layer_input=40,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=8,
        layer_types=["full_attention"] * 2,
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=8,
        initializer_range=0.2,
    )
    p = problem(Gemma4ForCausalLM(config).eval(), TASK, size=4)
    with pytest.raises(ConfigError, match="Gemma4ForCausalLM reads token ids also elsewhere"):
        attribute(p, "eap-ig")


@torch.no_grad()
def test_paths_on_which_something_acts_are_refused():
    """What a head writes is then not what later heads read."""
    with pytest.raises(ConfigError, match="canon='O'"):
        exact(random_problem(canon="O"), "edge")
    for name in ("hook_attn_out", "attn.hook_result"):
        p = random_problem()
        p.model.module.add_hook(f"blocks.0.{name}", lambda x, hook: 0 * x, is_permanent=True)
        with pytest.raises(ConfigError, match=f"hook at {name}"):
            exact(p, "edge")
    llama = random_llama()
    p = problem(llama, clean=ROWS, corrupted=OTHERS, metric=lambda x: x[:, -1, 7] - x[:, -1, 8])
    exact(p, "edge")
    llama(ROWS, output_attentions=True)  # transformers leaves hooks of its own
    exact(p, "edge")
    attention = llama.model.layers[0].self_attn
    for part in (attention, attention.o_proj):
        handle = part.register_forward_hook(lambda module, args, x: x)
        with pytest.raises(ConfigError, match="has a hook"):
            exact(p, "edge")
        handle.remove()
    module = random_problem().model.module
    module.layers[0].attn.register_forward_hook(lambda module, args, x: 0 * x)
    with pytest.raises(ConfigError, match="hook at attn"):
        path_patch(module, ROWS % 6, OTHERS % 6, (0, 0), (1, 0), "q")


ROWS, OTHERS = torch.randint(2, 40, (2, 3, 9), generator=torch.Generator().manual_seed(0))


def test_half_precision_and_padded_corruptions_are_refused():
    metric = {"metric": lambda x: x[:, -1, 7] - x[:, -1, 8]}
    with pytest.raises(ConfigError, match=r"torch\.bfloat16"):
        problem(random_llama().bfloat16(), clean=ROWS, corrupted=OTHERS, **metric)
    model = random_llama(bos_token_id=None, eos_token_id=1, pad_token_id=0)
    padded = OTHERS.clone()
    padded[1, :3] = 0
    with pytest.raises(ConfigError, match="begin with padding"):
        problem(model, clean=ROWS, corrupted=padded, **metric)


def test_an_interval_holds_its_number_and_needs_two_prompts():
    truth, estimates = (torch.tensor([[1.0, *x]] * 8) for x in ((1e-7, 2e-7), (2e-7, 1e-7)))
    assert interval(estimates, truth) == {"low": 1.0, "high": 1.0}
    assert np.isnan(interval(estimates[:1], truth[:1])["low"])
