"""First-order estimates: an activation, or its change, times the gradient of the metric with
respect to it.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import Edits, Place, gradients, in_each_layer, require_paths
from ihlab.attribution.problems import INPUTS, Problem

Values = Mapping[Place, Tensor]


def places_of(problem: Problem, nodes: str) -> list[Place]:
    """Return the places of the activations of a kind of nodes: z, the heads' inputs, or (edges) the
    heads' outputs.

    Raises `ConfigError` as `require_paths` does.
    """
    problem.nodes(nodes)
    if nodes in ("head", "position"):
        return in_each_layer(problem, "z")
    if nodes == "edge":
        require_paths(problem)
    return in_each_layer(problem, *(INPUTS if nodes == "input" else ("result",)))


def norms_frozen(problem: Problem) -> Edits:
    """Return edits that let no gradient flow through the scale of a norm, as if it were a constant.
    Raises `ConfigError` as `Problem.transformer` does.
    """
    scales = [(name, 0) for name in problem.transformer.hook_dict if name.endswith(".hook_scale")]
    return dict.fromkeys(scales, Tensor.detach)


def linear(
    problem: Problem,
    nodes: str,
    tokens: Tensor,
    value: Callable[[Place, Tensor], Tensor],
    edits: Edits | None = None,
) -> Float[Tensor, "prompt node"]:
    """Return values times the gradient of the metric, summed over positions and channels, per
    prompt and node.

    The gradient is taken on `tokens`, with activations changed by `edits`. `value` maps a place and
    its activation in that run to the value. For an edge, the value is what the earlier head writes,
    and the gradient is with respect to the residual stream, through only the later head's input at
    which the edge ends.
    """
    places = places_of(problem, nodes)
    if nodes == "edge":
        inputs = in_each_layer(problem, *INPUTS, "z")
        streams = in_each_layer(problem, "resid_pre")[1:]
        x, slopes = gradients(problem, tokens, inputs, edits, noted=[*streams, *places])
        written = {place: value(place, x[place].detach()) for place in places}
        return _of_edges(problem, written, x, by_head(problem, x, slopes))
    z = in_each_layer(problem, "z") if nodes == "input" else []
    x, slopes = gradients(problem, tokens, [*places, *z], edits)
    values = {place: value(place, x[place].detach()) for place in places}
    if nodes == "input":
        slopes = by_head(problem, x, slopes)
    of_place = []
    for place in places:
        copies = problem.model.n_heads // values[place].shape[2]  # query heads that read each key
        of_head = values[place].repeat_interleave(copies, dim=2)
        of_place.append((of_head * slopes[place]).sum(dim=3))
    products = torch.stack(of_place, dim=1)
    if nodes == "position":
        masks = problem.position_masks().to(products)
        return torch.einsum("blph,kbp->blhk", products, masks).flatten(1)
    of_kind = 1 if nodes == "head" else len(INPUTS)
    by_kind = products.sum(dim=2).unflatten(1, (of_kind, -1))  # [prompt, kind, layer, head]
    return by_kind.permute(0, 2, 3, 1).flatten(1)


def by_head(
    problem: Problem, x: Values, slopes: Values
) -> dict[Place, Float[Tensor, "batch pos head d_head"]]:
    """Return the gradients with respect to each query head's own queries, keys and values.

    Where several query heads share a key, the key's gradient through one of them is the gradient of
    this head's z, backpropagated to the key: one backward pass for each head of a group.
    """
    n_heads, alone = problem.model.n_heads, dict(slopes)
    for kind, layer in in_each_layer(problem, "k", "v"):
        n_keys = x[kind, layer].shape[2]
        if n_keys < n_heads:
            of_group: list[Tensor] = []
            grouped = slopes["z", layer].unflatten(2, (n_keys, -1))
            for member in range(n_heads // n_keys):
                only = torch.zeros_like(grouped)
                only[:, :, :, member] = grouped[:, :, :, member]
                of_group += torch.autograd.grad(
                    x["z", layer], x[kind, layer], only.flatten(2, 3), retain_graph=True
                )
            alone[kind, layer] = torch.stack(of_group, dim=3).flatten(2, 3)
    return alone


def _of_edges(
    problem: Problem, written: Values, x: Values, slopes: Values
) -> Float[Tensor, "prompt edge"]:
    n_layers, n_heads = problem.model.n_layers, problem.model.n_heads
    read = [_stream_gradients(x, slopes, layer, n_heads) for layer in range(1, n_layers)]
    estimates = []
    for early in range(n_layers - 1):
        later = torch.cat(read[early:])
        estimates.append(torch.einsum("bphm,rbpm->bhr", written["result", early], later).flatten(1))
    return torch.cat(estimates, dim=1)


def _stream_gradients(
    x: Values, slopes: Values, layer: int, n_heads: int
) -> Float[Tensor, "reader batch pos d_model"]:
    """Return the gradient with respect to the residual stream through each input of each head
    alone, head by head.
    """
    stream_slopes: list[Tensor] = []
    for head in range(n_heads):
        for kind in INPUTS:
            only = torch.zeros_like(x[kind, layer])
            only[:, :, head * only.shape[2] // n_heads] = slopes[kind, layer][:, :, head]
            stream_slopes += torch.autograd.grad(
                x[kind, layer], x["resid_pre", layer], only, retain_graph=True
            )
    return torch.stack(stream_slopes)
