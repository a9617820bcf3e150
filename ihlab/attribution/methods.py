"""The package's attribution methods: published variants and controls. Each estimates the column
`effect` of `exact`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import (
    START,
    Edits,
    Patch,
    Place,
    activations,
    clean_and_corrupted,
    gradients,
    holding,
    in_each_layer,
    patched,
)
from ihlab.attribution.linear import linear, norms_frozen, places_of
from ihlab.attribution.problems import Problem
from ihlab.attribution.registry import METHODS, heads_only, register_method
from ihlab.attribution.truth import exact_effects, patched_paths
from ihlab.interp.ablation import replacement
from ihlab.interp.heads import locate_induction_heads
from ihlab.interp.patching import replacing_layers
from tasks.config import ConfigError, require_integer

__all__ = ["LIBRARIES", "METHODS"]

LIBRARIES = ("gim",)
"""The methods that call another library."""

Estimates = Float[Tensor, "prompt node"]


@register_method("exact")
def exact_patching(problem: Problem, nodes: str) -> Estimates:
    """Return the exact effects."""
    return exact_effects(problem, nodes)


@register_method("attribution-patching")
def attribution_patching(problem: Problem, nodes: str) -> Estimates:
    """Return (clean - corrupted activation) . gradient on the corrupted prompt.

    Nanda 2023 (neelnanda.io/attribution-patching); for edges it is EAP (Syed et al. 2023, arXiv
    2310.10348).
    """
    return _atp(problem, nodes)


@register_method("frozen-norms")
def frozen_norms(problem: Problem, nodes: str) -> Estimates:
    """Return attribution patching with the scales of norms held constant in the backward pass.

    In a trained model, the gradient through norm scales can cancel most of the rest, so freezing
    changes the ranking.
    """
    return _atp(problem, nodes, edits=norms_frozen(problem))


@register_method("eap-ig")
def eap_ig(problem: Problem, nodes: str, steps: int = 5) -> Estimates:
    """Return EAP with integrated gradients: "EAP-IG inputs" of Hanna et al. 2024 (arXiv
    2403.17806).

    The gradient is averaged over k = 1 .. steps, taken at x(corrupted) + k / steps (x(clean) -
    x(corrupted)), where x is the residual stream before the first layer: all inputs move together.
    The paper takes five steps.
    """
    require_integer("steps", steps, 1)

    def line(clean: Tensor, corrupted: Tensor) -> list[Tensor]:
        return [corrupted + k / steps * (clean - corrupted) for k in range(1, steps + 1)]

    return _along_a_path(problem, nodes, line)


@register_method("eap-gp")
def eap_gp(problem: Problem, nodes: str, steps: int = 5) -> Estimates:
    """Return EAP with GradPath (Zhang et al. 2025, arXiv 2502.06852): EAP-IG along a path that
    avoids flat regions.

        x_0 = x(clean),   x_k = x_{k-1} - g / |g|,   g = gradient of |logits(x_{k-1}) - logits(corrupted)|^2

    The gradient of the metric is averaged over x_1 .. x_steps. The paper takes five steps of length
    1, and a path for each node. As other implementations do, we take one path, of the residual
    stream before the first layer.
    """
    require_integer("steps", steps, 1)
    with torch.no_grad():
        target = problem.model.differentiable_logits(problem.corrupted)
    distance = replace(problem, metric=lambda logits: (logits - target).square().sum(dim=(1, 2)))

    def descent(clean: Tensor, corrupted: Tensor) -> list[Tensor]:
        points = [clean]
        for _ in range(steps):
            here = holding({START: points[-1]}, [START])
            slope = gradients(distance, problem.clean, [START], here)[1][START]
            length = slope.flatten(1).norm(dim=1).clamp_min(torch.finfo(slope.dtype).tiny)
            points.append(points[-1] - slope / length[:, None, None])
        return points[1:]

    return _along_a_path(problem, nodes, descent)


def _along_a_path(
    problem: Problem, nodes: str, path: Callable[[Tensor, Tensor], list[Tensor]]
) -> Estimates:
    """Return (clean - corrupted activation) . gradient, mean over the points of a path.

    `path` maps the residual streams before the first layer, clean and corrupted, to the points.
    """
    places = places_of(problem, nodes)
    clean, corrupted = clean_and_corrupted(problem, [START, *places])
    change = lambda place, _: clean[place] - corrupted[place]  # noqa: E731
    estimates = []
    for point in path(clean[START], corrupted[START]):
        here = holding({START: point}, [START])
        estimates.append(linear(problem, nodes, problem.clean, change, here))
    return torch.stack(estimates).mean(dim=0)


@register_method("integrated-gradients")
def integrated_gradients(problem: Problem, nodes: str, steps: int = 10) -> Estimates:
    """Return integrated gradients along each head's own activation (Sundararajan et al. 2017, arXiv
    1703.01365).

        d . mean of the gradient at corrupted + a d over a = 1/2n, 3/2n .. (2n - 1)/2n,   d = clean - corrupted

    Only this head of the corrupted run changes, so with many midpoints (n = `steps`) the result
    approaches the exact effect. It takes more passes than exact patching: `steps` forward and
    backward passes per head.
    """
    require_integer("steps", steps, 1)
    heads_only("integrated-gradients", nodes)
    places = in_each_layer(problem, "z")
    clean, corrupted = clean_and_corrupted(problem, places)
    estimates = []
    for place in places:
        for head in range(problem.model.n_heads):
            change = (clean[place] - corrupted[place])[:, :, head]
            slopes = []
            for k in range(steps):
                z = corrupted[place].clone()
                z[:, :, head] += (k + 0.5) / steps * change
                moved = holding({place: z.requires_grad_()}, [place])
                slope = gradients(problem, problem.corrupted, [place], moved)[1][place]
                slopes.append(slope[:, :, head])
            estimates.append((change * torch.stack(slopes).mean(dim=0)).sum(dim=(1, 2)))
    return torch.stack(estimates, dim=1)


@register_method("atp-qk")
def atp_qk(problem: Problem, nodes: str) -> Estimates:
    """Return AtP with the query and key correction of AtP* (Kramár et al. 2024, arXiv 2403.00745).

    A changed query or key goes through the softmax exactly; only the rest of the model is
    linearised: (changed - corrupted pattern) . gradient with respect to the pattern. The paper's
    nodes are queries and keys at one position; here a node has all positions. A head's z has no
    correction in the paper, so "head" is plain AtP. For edges, the query or key is the one that the
    later head computes from the patched stream: our extension.
    """
    return _atp(problem, nodes, _pattern_changes(problem, nodes))


@register_method("atp-star")
def atp_star(problem: Problem, nodes: str) -> Estimates:
    """Return AtP*: the query and key correction with GradDrop (Kramár et al. 2024, arXiv
    2403.00745).

        1 / (L - 1) sum over layers l = 1 .. L of |estimate with no gradient through what layer l
        writes|

    As in the paper, each absolute value is one prompt's. The sign is that of the estimate with all
    gradients. With two layers, no term of a first-layer head has the gradient through the second
    layer: only the head's direct effect is left. With one layer the estimate is that of "atp-qk".
    """
    changes = _pattern_changes(problem, nodes)
    whole = _atp(problem, nodes, changes)
    if problem.model.n_layers == 1:
        return whole
    sizes = torch.zeros_like(whole)
    for layer, block in enumerate(problem.transformer.layers):
        outputs = [("attn_out", layer)]
        if block.mlp is not None:
            outputs.append(("mlp_out", layer))
        sizes += _atp(problem, nodes, changes, dict.fromkeys(outputs, Tensor.detach)).abs()
    return whole.sign() * sizes / (problem.model.n_layers - 1)


@register_method("atp-edges")
def atp_edges(problem: Problem, nodes: str) -> Estimates:
    """Return attribution patching of heads, with its first-order edges replaced by those of
    "atp-qk".

    Our extension: AtP* computes a head's own softmax exactly, but not those of the later heads that
    read it.
    """
    heads_only("atp-edges", nodes)
    estimates = attribution_patching(problem, "head")
    if problem.model.n_layers == 1:
        return estimates
    edges = problem.nodes("edge")
    sender = edges["from_layer"] * problem.model.n_heads + edges["from_head"]
    corrected = atp_qk(problem, "edge") - attribution_patching(problem, "edge")
    return estimates.index_add(
        1, torch.tensor(sender.to_numpy(), device=estimates.device), corrected
    )


PatternChanges = list[tuple[list[int], Place, Float[Tensor, "batch head query key"]]]
"""For each item: nodes of a layer's heads, the layer's pattern, and the pattern's change when each
node is patched.
"""


@torch.no_grad()
def _pattern_changes(problem: Problem, nodes: str) -> PatternChanges:
    """Return how each query and key changes the patterns: from the clean run, or patched along the
    path of an edge.
    """
    if nodes in ("head", "position"):
        return []
    before = activations(problem, problem.corrupted, in_each_layer(problem, "pattern"))
    table = problem.nodes(nodes)
    columns = [name for name in table if name not in ("head", "to_head")]
    of_heads: Any = table.groupby(columns, sort=False).indices
    changes: PatternChanges = []

    def add(pattern: Tensor, *key: Any) -> None:
        place = ("pattern", key[-2])
        changes.append((of_heads[key].tolist(), place, pattern - before[place]))

    if nodes == "edge":
        layers = range(problem.model.n_layers)
        for sender, layer, kind, pattern in patched_paths(problem, layers, ("q", "k"), "pattern"):
            add(pattern, *sender, layer, kind)
        return changes
    clean = activations(problem, problem.clean, in_each_layer(problem, "q", "k"))
    for kind, layer in clean:
        place, edits = ("pattern", layer), holding(clean, [(kind, layer)])
        add(activations(problem, problem.corrupted, [place], edits)[place], layer, kind)
    return changes


def _atp(
    problem: Problem,
    nodes: str,
    changes: PatternChanges | None = None,
    edits: Edits | None = None,
) -> Estimates:
    """Return (clean - corrupted activation) . gradient, with `changes` of patterns in their place."""
    clean = activations(problem, problem.clean, places_of(problem, nodes))
    change = lambda place, activation: clean[place] - activation  # noqa: E731
    estimates = linear(problem, nodes, problem.corrupted, change, edits)
    if changes:
        _, slopes = gradients(problem, problem.corrupted, in_each_layer(problem, "pattern"), edits)
        for of_heads, place, moved in changes:
            estimates[:, of_heads] = (moved * slopes[place]).sum(dim=(2, 3))
    return estimates


@register_method("activation-gradient")
def activation_gradient(problem: Problem, nodes: str) -> Estimates:
    """Return clean activation . gradient on the clean prompt (input times gradient, Shrikumar et
    al. 2016).
    """
    return linear(problem, nodes, problem.clean, lambda _, activation: activation)


@register_method("direct-logit-attribution")
def direct_logit_attribution(problem: Problem, nodes: str) -> Estimates:
    """Return the dot product of each head's clean output and the metric's direction in the final
    residual stream.

    Elhage et al. 2021, as TransformerLens' `logit_attrs`: the final norm's scale is that of the
    clean prompt, held constant. It leaves out what later layers make of a head's output.
    """
    heads_only("direct-logit-attribution", nodes)
    model, n_layers = problem.transformer, problem.model.n_layers
    end: Place = (f"blocks.{n_layers - 1}.hook_resid_post", 0)
    direction = gradients(problem, problem.clean, [end], norms_frozen(problem))[1][end]
    written = activations(problem, problem.clean, in_each_layer(problem, "result"))
    estimates = []
    for (_, layer), x in written.items():
        reaches_end = not replacing_layers(model, layer, n_layers)
        estimates.append(torch.einsum("bphm,bpm->bh", x, direction) * reaches_end)
    return torch.cat(estimates, dim=1)


@register_method("gim")
def gim(problem: Problem, nodes: str) -> Float[Tensor, "prompt node"]:
    """Return GIM: (clean - corrupted activation) . modified gradient on the clean prompt (package
    `gim-explain`).

    Edin et al. 2025 (arXiv 2505.17630), with the package's defaults: the softmax is differentiated
    at temperature 2, gradients of queries, keys and values are multiplied by 1/4, 1/4 and 1/2, and
    the scales of norms are constant.
    """
    try:
        from gim import GIM
    except ImportError:
        raise ConfigError(
            "The method 'gim' needs the package gim-explain: pip install gim-explain."
        ) from None
    # A hook at the pattern makes attention explicit: GIM cannot change the softmax inside a fused
    # kernel.
    explicit = dict.fromkeys(in_each_layer(problem, "pattern"), Tensor.clone)
    corrupted = activations(problem, problem.corrupted, places_of(problem, nodes))
    with GIM(problem.transformer):
        change = lambda place, activation: activation - corrupted[place]  # noqa: E731
        return linear(problem, nodes, problem.clean, change, explicit)


def _ablation(how: str) -> None:
    @register_method(f"{how}-ablation")
    def ablated(problem: Problem, nodes: str, seed: int = 0) -> Estimates:
        heads_only(f"{how}-ablation", nodes)
        patches: list[Patch] = []
        for place, z in activations(problem, problem.clean, in_each_layer(problem, "z")).items():
            ablated_z = replacement(z, how, seed)
            patches += [{place: ([head], ablated_z)} for head in range(problem.model.n_heads)]
        return (problem.ends[0] - patched(problem, problem.clean, patches)).T

    what = f"a head's z is {how}-ablated (`ablate_heads`)"
    ablated.__doc__ = f"Return how much the metric falls on the clean prompts when {what}."


for _how in ("zero", "mean", "resample"):
    _ablation(_how)


@register_method("head-scores")
def head_scores(problem: Problem, nodes: str) -> pd.DataFrame:
    """Return the prefix_matching of `locate_induction_heads`: attention on random tokens, no patch
    and no gradient.

    Attention has no sign, so every estimate gets the sign of the swing.
    """
    heads_only("head-scores", nodes)
    scores = locate_induction_heads(problem.model)
    return scores[["layer", "head"]].assign(
        effect=scores["prefix_matching"] * np.sign(problem.swing)
    )


@register_method("random")
def random(problem: Problem, nodes: str, seed: int = 0) -> Estimates:
    """Return normal random numbers, the same for every prompt: a control at chance level."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(len(problem.nodes(nodes)), generator=generator)
    return numbers.expand(len(problem.clean), -1)


@register_method("constant")
def constant(problem: Problem, nodes: str) -> Estimates:
    """Return the same number for every node, of the swing's sign: a control."""
    size = len(problem.clean), len(problem.nodes(nodes))
    return torch.full(size, float(np.sign(problem.swing)))


@register_method("previous-position")
def previous_position(problem: Problem, nodes: str, start: int = 0) -> Estimates:
    """Return numbers that decrease row by row, cyclically from `start`: a control that uses only
    the nodes' order.
    """
    n = len(problem.nodes(nodes))
    row = (torch.arange(n) - start) % n
    return ((n - row) * np.sign(problem.swing)).expand(len(problem.clean), -1)
