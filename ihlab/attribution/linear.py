"""First-order estimates: the change of an activation times the gradient of the metric by it."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import Edits, Place, activations, gradients, layers_of
from ihlab.attribution.problems import INPUTS, Problem
from ihlab.interp.patching import require_direct_paths
from tasks.config import require

Values = Mapping[Place, Float[Tensor, "batch pos head d"]]


def places_of(p: Problem, nodes: str) -> list[Place]:
    """Return the places of a kind of nodes: z, or the heads' inputs, or (for edges) what is written to the stream.

    Raises `ConfigError` for inputs and edges of a model with grouped keys, where several heads read one key, and for
    edges of a model without direct paths.
    """
    p.nodes(nodes)
    if nodes == "head":
        return layers_of(p, "z")
    cfg = p.transformer.cfg
    require(
        cfg.kv_heads == cfg.n_heads,
        f"The model has {cfg.kv_heads} heads of keys for {cfg.n_heads} of queries, so that several heads share the "
        "gradient by a key: inputs and edges have exact effects only.",
    )
    if nodes == "edge":
        require_direct_paths(p.transformer, 0, cfg.n_layers - 1)
    return layers_of(p, *(INPUTS if nodes == "input" else ("result",)))


def differences(p: Problem, nodes: str) -> Values:
    """Return the clean minus the corrupted activations of a kind of nodes."""
    places = places_of(p, nodes)
    clean, corrupted = (activations(p, tokens, places) for tokens in (p.clean, p.corrupted))
    return {place: clean[place] - corrupted[place] for place in places}


def linear(
    p: Problem, nodes: str, values: Values, tokens: Tensor, edits: Edits | None = None, frozen_norms: bool = False
) -> Float[Tensor, "prompt node"]:
    """Return values times the gradient of the metric, summed over positions and channels, per prompt and node.

    The gradient is taken on `tokens`, with activations changed by `edits`. `frozen_norms`: no gradient flows through
    the scale of a norm, as if it were a constant. For an edge, the value is what the earlier head writes, and the
    gradient is by the residual stream along the path that only this input of the later head reads it.
    """
    edits = dict(edits or {})
    if frozen_norms:
        edits |= dict.fromkeys(norm_scales(p), Tensor.detach)
    if nodes == "edge":
        return _of_edges(p, values, tokens, edits)
    places = places_of(p, nodes)
    _, slopes = gradients(p, tokens, places, edits)
    found = [(values[place] * slopes[place]).sum(dim=(1, 3)) for place in places]  # [prompt, head] of each place
    of_kind = 1 if nodes == "head" else len(INPUTS)
    stacked = torch.stack(found, dim=1).unflatten(1, (of_kind, -1))  # [prompt, kind, layer, head]
    return stacked.permute(0, 2, 3, 1).flatten(1)


def norm_scales(p: Problem) -> list[Place]:
    """Return the places of the scales of all norms. Raises `ConfigError` for a model of another library."""
    return [(name, 0) for name in p.transformer.hook_dict if name.endswith(".hook_scale")]


def _of_edges(p: Problem, values: Values, tokens: Tensor, edits: Edits) -> Float[Tensor, "prompt edge"]:
    n_layers, heads = p.model.n_layers, range(p.model.n_heads)
    places = layers_of(p, *INPUTS)
    x, slopes = gradients(p, tokens, [*places, *layers_of(p, "resid_pre")], edits)
    found = []
    for early in range(n_layers - 1):
        by_late = []
        for late in range(early + 1, n_layers):
            read = stream_gradients(x, slopes, late, heads)
            by_late.append(torch.einsum("bphm,rbpm->bhr", values["result", early], read))
        found.append(torch.cat(by_late, dim=2).flatten(1))  # head, then later layer, head and input
    return torch.cat(found, dim=1)


def stream_gradients(x: Values, slopes: Values, layer: int, heads: range) -> Float[Tensor, "reader batch pos d_model"]:
    """Return the gradient by the residual stream through each input of each head alone, head by head."""
    stream, found = x["resid_pre", layer], []
    for head in heads:
        for kind in INPUTS:
            only = torch.zeros_like(slopes[kind, layer])
            only[:, :, head] = slopes[kind, layer][:, :, head]
            found.append(torch.autograd.grad(x[kind, layer], stream, only, retain_graph=True)[0])
    return torch.stack(found)
