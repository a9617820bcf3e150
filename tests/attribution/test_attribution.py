"""Exact effects and their estimates, against other implementations, closed forms and models by
construction.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformer_lens import patching

from ihlab import ModelConfig, Transformer
from ihlab.attribution import METHODS, attribute, compare, exact, problem, register_method
from ihlab.attribution.circuits import Faithfulness
from ihlab.attribution.estimates import estimated
from ihlab.attribution.scores import expected_recall, interval, rank_correlations
from ihlab.attribution.truth import exact_effects
from ihlab.interp.patching import path_patch
from ihlab.interp.prompt_pair import prompt_pair
from ihlab.model.conversion import from_llama
from ihlab.theory.constructions import kv_shift_induction_head, two_layer_induction_head
from tasks import ConfigError, InductionTask

TASK = InductionTask(vocab_size=40, length=16)
PLAIN = {"norm": "none", "mlp": "none", "positional": "none"}
"""Attention alone: the metric is linear in what the last layer's heads read."""


def made(size=5, **changes):
    fields = {
        "n_layers": 2,
        "d_model": 12,
        "n_heads": 3,
        "d_head": 5,
        "d_vocab": 40,
        "n_ctx": 16,
        "positional": "alibi",
    }
    model = (
        Transformer(ModelConfig(**{**fields, "attention": "kv_shift", **changes}), seed=3)
        .double()
        .eval()
    )
    return problem(model, TASK, size=size)


@pytest.fixture(scope="module")
def p():
    return made()


@pytest.fixture(scope="module")
def plain():
    return {n_layers: made(n_layers=n_layers, **PLAIN) for n_layers in (1, 2)}


def same(x, y, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=tolerance)


# The truth


@pytest.mark.parametrize(("column", "sign"), [("effect", 1), ("reverse", -1)])
def test_heads_and_inputs_are_patched_as_transformer_lens_patches_them(p, column, sign):
    of = p if sign == 1 else p.swapped
    model, (before, metric) = (
        of.model.module,
        (of.ends[1].mean(), lambda logits: of.metric(logits).mean()),
    )
    _, cache = model.run_with_cache(of.clean)
    with torch.no_grad():
        kinds = {kind: f"get_act_patch_attn_head_{kind}_all_pos" for kind in ("out", "q", "k", "v")}
        found = {
            k: getattr(patching, name)(model, of.corrupted, cache, metric) - before
            for k, name in kinds.items()
        }
    same(exact(p)[column], sign * found["out"].flatten(), 1e-6)
    same(
        exact(p, "input")[column],
        sign * torch.stack([found[kind] for kind in "qkv"], dim=-1).flatten(),
        1e-6,
    )


@torch.no_grad()
def test_an_edge_is_a_patched_path(p):
    for row in exact(p, "edge").itertuples():
        ends = (row.from_layer, row.from_head), (row.to_layer, row.to_head), row.input
        patched = p.metric(path_patch(p.model.module, p.corrupted, p.clean, *ends))
        assert row.effect == pytest.approx((patched - p.ends[1]).mean().item(), abs=1e-9)


def test_heads_that_share_keys_are_patched_one_by_one():
    """The oracle has a copy of the keys and values for each head of queries."""
    shared = made(n_heads=4, n_key_value_heads=2, d_head=4)
    apart = made(n_heads=4, d_head=4)
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
    with pytest.raises(
        ConfigError, match="several heads share a key, which cannot move for one of them alone"
    ):
        attribute(shared, "integrated-gradients", "input")
    assert np.isnan(compare(shared, ["random"], "input").loc[0, "cpr"])


CLEAN, CORRUPTED = [[0, 1, 2, 3, 4, 5, 6, 0]], [[3, 1, 2, 0, 4, 5, 6, 0]]
"""The 0 is followed by 1, and in the corrupted prompt by 4."""


def constructed(model):
    return problem(
        model,
        clean=CLEAN,
        corrupted=CORRUPTED,
        metric=lambda logits: logits[:, -1, 1] - logits[:, -1, 4],
    )


def test_the_two_layers_of_theorem_3_2_work_as_they_are_built():
    """Layer 0 writes the past's values wherever it stands; layer 1, all of the output, reads them
    as its keys.
    """
    p = constructed(
        two_layer_induction_head(torch.eye(9).double(), 9, sigma=0.05, slope=0.01, first_slope=20.0)
    )
    assert p.swing == pytest.approx(2, abs=1e-6)
    for column in ("fraction", "reverse_fraction"):
        same(exact(p)[column], [1, 1], 1e-6)
        same(exact(p, "input")[column], [0, 0, 1, 0, 1, 0], 1e-6)
        same(exact(p, "edge")[column], [0, 1, 0], 1e-6)
    for nodes in ("input", "edge"):
        assert compare(p, ["exact"], nodes).loc[0, ["recall", "sign_errors"]].tolist() == [1, 0]
    assert np.isnan(
        compare(p, ["exact"]).loc[0, "recall"]
    )  # both heads are true: any order finds them
    assert (
        attribute(p).loc[0, "fraction"] < 1e-6
    )  # saturated: first-order patching sees nothing of layer 0


def test_the_shifted_head_of_theorem_3_3_reads_where_by_its_keys_alone():
    p = constructed(
        kv_shift_induction_head(torch.eye(9).double(), 9, sigma=0.05, slope=0.01, mask="strict")
    )
    same(exact(p)["fraction"], [1], 1e-6)
    same(exact(p, "input")["fraction"], [0, 1, 0], 1e-6)


# The methods


@torch.no_grad()
def directions(p):
    """The direction in the residual stream at each position that raises a prompt's metric: W_U,
    answer minus other.
    """
    pair, found = prompt_pair(TASK, size=5, corrupt="key"), torch.zeros(5, 16, 12).double()
    found[range(5), pair.position] = (
        p.model.module.W_U[:, pair.answer] - p.model.module.W_U[:, pair.other]
    ).T
    return found


@torch.no_grad()
def written(p, tokens):
    _, cache = p.model.module.run_with_cache(tokens)
    return [
        torch.einsum("bphd,hdm->bphm", cache["z", n], p.model.module.W_O[n])
        for n in range(p.model.n_layers)
    ]


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
    assert (
        np.abs(
            attribute(plain[1], nodes="input")["effect"] - exact(plain[1], "input")["effect"]
        ).max()
        > 1e-3
    )
    same(estimated(plain[1], "atp-qk", "input"), exact_effects(plain[1], "input"))
    same(estimated(plain[2], "atp-qk", "edge"), exact_effects(plain[2], "edge"))


def test_the_edges_of_a_head_and_its_direct_effect_are_summed(plain):
    p, u = plain[2], directions(plain[2])
    change = [
        clean - corrupted
        for clean, corrupted in zip(written(p, p.clean), written(p, p.corrupted), strict=True)
    ]
    direct = torch.einsum("bphm,bpm->bh", change[0], u)
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
        ends.append(
            torch.stack(
                [p.model.module.run_with_cache(tokens)[1]["z", layer] for layer in range(2)]
            )
        )
    effects = ((ends[0] - ends[1]) * torch.stack(slopes).mean(dim=0)).sum(dim=(2, 4)).mean(dim=1)
    same(attribute(p, method, **options)["effect"], effects.detach().flatten())


@pytest.mark.parametrize("nodes", ["head", "input"])
def test_integrated_gradients_along_a_node_are_its_exact_effect(p, nodes):
    """By the fundamental theorem of calculus; the midpoint rule has an error of order 1 / steps^2."""
    right = exact_effects(p, nodes)
    few, many = (
        estimated(p, "integrated-gradients", nodes, steps=steps) - right for steps in (4, 40)
    )
    assert many.abs().max() < 2e-3 * right.abs().max()
    assert many.abs().sum() < few.abs().sum() / 30


@pytest.mark.parametrize("how", ["zero", "mean"])
def test_ablations_replace_one_head(p, how):
    for row in attribute(p, f"{how}-ablation").itertuples():

        def hook(z, hook, head=row.head):
            z[:, :, head] = z[:, :, head].mean(dim=(0, 1)) if how == "mean" else 0
            return z

        with torch.no_grad():
            logits = p.model.module.run_with_hooks(
                p.clean, fwd_hooks=[(f"blocks.{row.layer}.attn.hook_z", hook)]
            )
        assert row.effect == pytest.approx((p.ends[0] - p.metric(logits)).mean().item(), abs=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("alone", [True, False])
def test_transformer_lens_finds_the_same_first_order_effects(alone):
    """On attention alone (MLPs that write nothing, norms kept) and on a whole Llama."""
    p = made(attention="vanilla", positional="rope", n_heads=3, d_head=4, size=3)
    if alone:
        for block in p.model.module.layers:
            torch.nn.init.zeros_(block.mlp.out_proj.weight)
    p = problem(p.model.module.float(), TASK, size=3)
    for nodes in ("head", "edge"):
        same(
            attribute(p, "transformer-lens", nodes)["effect"],
            attribute(p, nodes=nodes)["effect"],
            1e-5,
        )


@pytest.mark.parametrize("n_keys", [4, 2])
def test_inputs_and_edges_of_a_llama_are_those_of_its_conversion(n_keys):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 3, "vocab_size": 40}
    heads = {
        "num_attention_heads": 4,
        "num_key_value_heads": n_keys,
        "head_dim": 8,
        "initializer_range": 0.3,
    }
    torch.manual_seed(0)
    llama = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()
    theirs, ours = (
        problem(model, TASK, size=4) for model in (llama, from_llama(llama, n_ctx=TASK.length))
    )
    for nodes in ("input", "edge"):
        right = exact(ours, nodes)
        same(exact(theirs, nodes)[["effect", "reverse"]], right[["effect", "reverse"]], 1e-5)
        some = exact(theirs, nodes, layers=[2, 1])
        same(some["effect"], right.loc[some.index, "effect"], 1e-5)
        assert set(some.filter(like="layer").to_numpy().flatten()) == {1, 2}
        for method in ("attribution-patching", "eap-ig", "activation-gradient"):
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


def test_random_numbers_are_at_chance():
    rng = np.random.default_rng(0)
    true = np.arange(12) < 3
    size = np.where(true, 8.0, 0.01) + rng.random(12)
    draws = np.abs(rng.normal(size=(300, 12)))
    ranks, recalls = (
        rank_correlations(draws, np.tile(size, (300, 1))),
        [expected_recall(each, true) for each in draws],
    )
    for found, chance in ((ranks, 0), (recalls, 3 / 12)):
        assert abs(np.mean(found) - chance) < 3 * np.std(found) / 300**0.5


def test_the_interval_is_over_prompts():
    """Two nodes whose order is that of every prompt have one order; one whose order differs by
    prompt, any.
    """
    truth = torch.tensor([[3.0, 1.0, 0.0]] * 8)
    assert interval(truth, truth) == {"low": 1, "high": 1}
    mixed = torch.tensor([[3.0, 1.0, 0.0], [1.0, 3.0, 0.0]] * 4)
    assert interval(mixed, truth) == {"low": 0.5, "high": 1}
    assert interval(torch.ones(8, 3), truth) == {"low": 0, "high": 0}


def test_faithfulness_keeps_the_best_nodes_and_patches_the_rest(p):
    effects = np.array([0.1, -3.0, 2.0, 0.0, 1.0, -0.5])
    _, cache = p.model.module.run_with_cache(p.corrupted)
    for absolute, order in ((False, [2, 4, 0, 3, 5, 1]), (True, [1, 2, 4, 5, 0, 3])):
        metric = []
        for k in range(7):

            def hook(z, hook, rest=order[k:]):
                for node in rest:
                    if hook.layer() == node // 3:
                        z[:, :, node % 3] = cache["z", node // 3][:, :, node % 3]
                return z

            with torch.no_grad():
                logits = p.model.module.run_with_hooks(
                    p.clean, fwd_hooks=[(lambda name: name.endswith("hook_z"), hook)]
                )
            metric.append(p.metric(logits).mean().item())
        ranked = np.abs(effects) if absolute else effects * np.sign(p.swing)
        kept, curves = Faithfulness(p).curves(ranked)
        same(curves.mean(axis=0), (np.array(metric) - metric[0]) / (metric[-1] - metric[0]))
        same(kept, np.arange(7) / 6)


# A stranger's method, and bad input


@pytest.fixture
def registered():
    before = dict(METHODS)
    yield register_method
    METHODS.clear()
    METHODS.update(before)


def test_a_strangers_table_is_taken_in_any_order(p, registered):
    @registered("mine")
    def mine(p, nodes, factor=2.0):
        return p.nodes(nodes).assign(effect=factor * exact(p, nodes)["effect"])[::-1]

    for nodes in ("head", "edge"):
        same(attribute(p, "mine", nodes, factor=3.0)["effect"], 3 * exact(p, nodes)["effect"])
    assert compare(p, ["mine"]).loc[0, "rank_correlation"] == pytest.approx(1)
    with pytest.raises(ConfigError, match="'mine' is registered already"):
        registered("mine")(lambda p, nodes: None)
    with pytest.raises(
        ConfigError, match="There is no option of mine 'factors'; did you mean 'factor'"
    ):
        attribute(p, "mine", factors=1)


RETURNED = {
    "returned 5 rows, but must return one row for each of the 6 nodes": lambda p: p.nodes("head")[
        1:
    ].assign(effect=1.0),
    "has no column effect": lambda p: p.nodes("head"),
    r"returned \[6\], but must return \[5, 6\]: \[prompt, node\]": lambda p: torch.zeros(6),
    "returned NoneType": lambda p: None,
}


@pytest.mark.parametrize(("said", "table"), RETURNED.items())
def test_a_method_that_returns_other_nodes_is_refused(p, registered, said, table):
    registered("mine")(lambda p, nodes: table(p))
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
    ({**OWN, "metric": lambda x: 3.0}, "The metric returns float, but must"),
    (
        {**OWN, "corrupted": torch.ones(2, 5).long()},
        r"corrupted prompts are \[2, 5\], but the clean ones are \[2, 4\]",
    ),
    (
        {**OWN, "corrupted": OWN["clean"]},
        "on clean and on corrupted prompts: there is no effect to attribute",
    ),
    ({**OWN, "clean": [[1, 2], [3]]}, "tokens"),
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
            lambda p: exact(made(n_layers=1), "edge"),
            "1 layer, but an edge between heads needs at least 2",
        ),
        (lambda p: attribute(p, "transformer-lens"), "Llama can only have"),
    ],
)
def test_a_wrong_question_is_refused(p, ask, said):
    with pytest.raises(ConfigError, match=said):
        ask(p)


def test_without_names_a_method_that_cannot_answer_says_why(p):
    found = compare(p, nodes="input").set_index("method")
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

    sizes = {
        "vocab_size": 40,
        "vocab_size_per_layer_input": 40,
        "hidden_size": 16,
        "intermediate_size": 16,
    }
    heads = {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }
    torch.manual_seed(0)
    config = Gemma4TextConfig(
        **sizes,
        **heads,
        global_head_dim=8,
        layer_types=["full_attention"] * 2,
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=8,
        initializer_range=0.2,
    )
    p = problem(Gemma4ForCausalLM(config).eval(), TASK, size=4)
    assert attribute(p)["effect"].abs().max() > 0
    with pytest.raises(ConfigError, match="Gemma4ForCausalLM reads token ids also elsewhere"):
        attribute(p, "eap-ig")
