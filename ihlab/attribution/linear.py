"""First-order estimates: an activation, or its change, times the gradient of the metric by it."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import Edits, Place, gradients, in_each_layer
from ihlab.attribution.problems import INPUTS, Problem
from ihlab.interp.patching import require_direct_paths
from tasks.config import require

Values = Mapping[Place, Tensor]


def places_of(problem: Problem, nodes: str) -> list[Place]:
    """Return the places of a kind of nodes: z, or the heads' inputs, or (for edges) what heads write to the stream.

    Raises `ConfigError` for inputs and edges of a model with grouped keys, where several heads read one key, and for
    edges of a model without direct paths.
    """
    problem.nodes(nodes)
    if nodes in ("head", "position"):
        return in_each_layer(problem, "z")
    cfg = problem.transformer.cfg
    require(
        cfg.kv_heads == cfg.n_heads,
        f"The model has {cfg.kv_heads} key/value heads for {cfg.n_heads} query heads, so several heads share the "
        "gradient of a key: inputs and edges can only be patched exactly.",
    )
    if nodes == "edge":
        require_direct_paths(problem.transformer, 0, cfg.n_layers - 1)
    return in_each_layer(problem, *(INPUTS if nodes == "input" else ("result",)))


def norm_scales(problem: Problem) -> list[Place]:
    """Return the places of the scales of all norms. Raises `ConfigError` for a model of another library."""
    return [(name, 0) for name in problem.transformer.hook_dict if name.endswith(".hook_scale")]


def linear(
    problem: Problem,
    nodes: str,
    tokens: Tensor,
    value: Callable[[Place, Tensor], Tensor],
    edits: Edits | None = None,
    frozen_norms: bool = False,
) -> Float[Tensor, "prompt node"]:
    """Return values times the gradient of the metric, summed over positions and channels, per prompt and node.

    The gradient is taken on `tokens`, with activations changed by `edits`. `value` maps a place and its activation in
    that run to the value. `frozen_norms`: no gradient flows through the scale of a norm, as if it were a constant. For
    an edge, the value is what the earlier head writes, and the gradient is by the residual stream as only this input of
    the later head reads it.
    """
    edits = dict(edits or {}) | (dict.fromkeys(norm_scales(problem), Tensor.detach) if frozen_norms else {})
    places = places_of(problem, nodes)
    if nodes == "edge":
        x, slopes = gradients(problem, tokens, [*in_each_layer(problem, *INPUTS, "resid_pre")], edits, noted=places)
        return _of_edges(problem, {place: value(place, x[place].detach()) for place in places}, x, slopes)
    x, slopes = gradients(problem, tokens, places, edits)
    products = torch.stack([(value(place, x[place].detach()) * slopes[place]).sum(dim=3) for place in places], dim=1)
    if nodes == "position":
        masks = problem.position_masks().to(products)
        return torch.einsum("blph,kbp->blhk", products, masks).flatten(1)
    of_kind = 1 if nodes == "head" else len(INPUTS)
    by_kind = products.sum(dim=2).unflatten(1, (of_kind, -1))  # [prompt, kind, layer, head]
    return by_kind.permute(0, 2, 3, 1).flatten(1)


def _of_edges(problem: Problem, written: Values, x: Values, slopes: Values) -> Float[Tensor, "prompt edge"]:
    n_layers = problem.model.n_layers
    read = [_stream_gradients(x, slopes, layer, problem.model.n_heads) for layer in range(1, n_layers)]
    estimates = []
    for early in range(n_layers - 1):
        later = torch.cat(read[early:])
        estimates.append(torch.einsum("bphm,rbpm->bhr", written["result", early], later).flatten(1))
    return torch.cat(estimates, dim=1)


def _stream_gradients(x: Values, slopes: Values, layer: int, n_heads: int) -> Float[Tensor, "reader batch pos d_model"]:
    """Return the gradient by the residual stream through each input of each head alone, head by head."""
    stream_slopes: list[Tensor] = []
    for head in range(n_heads):
        for kind in INPUTS:
            only = torch.zeros_like(slopes[kind, layer])
            only[:, :, head] = slopes[kind, layer][:, :, head]
            stream_slopes += torch.autograd.grad(x[kind, layer], x["resid_pre", layer], only, retain_graph=True)
    return torch.stack(stream_slopes)
