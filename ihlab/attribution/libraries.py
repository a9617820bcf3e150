"""Methods of other libraries: TransformerLens' attribution patching, and GIM."""

from collections import defaultdict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import activations, in_each_layer
from ihlab.attribution.linear import linear, places_of
from ihlab.attribution.methods import METHODS
from ihlab.attribution.problems import Problem
from ihlab.attribution.registry import register_method
from ihlab.interp.hugging_face import BridgedModel
from ihlab.model.conversion.gpt2 import to_gpt2
from ihlab.model.conversion.llama import to_llama
from tasks.config import ConfigError, require

__all__ = ["LIBRARIES", "METHODS"]

LIBRARIES = ("transformer-lens", "gim")
"""The methods that call another library."""


@register_method("transformer-lens")
@torch.enable_grad()
def transformer_lens(problem: Problem, nodes: str) -> Float[Tensor, "prompt node"]:
    """Return TransformerLens 4.3's `attribution_patch`, summed over positions, for heads or edges.

    It runs on a `TransformerBridge`: the problem's own, or one made from our model, converted to a
    Llama or a GPT-2. It scores one prompt at a time. Raises `ConfigError` for a model of neither
    family.
    """
    from transformer_lens.tools.analysis import attribution_patching as theirs

    require(
        nodes in ("head", "edge"),
        f"The method 'transformer-lens' scores heads and edges, not nodes={nodes!r}.",
    )
    bridge, where = (
        _bridge(problem),
        {tuple(row): i for i, row in enumerate(problem.nodes(nodes).itertuples(index=False))},
    )
    config = theirs.EdgeAttributionConfig(granularity="node" if nodes == "head" else "edge")
    estimates = torch.zeros(len(problem.clean), len(where))
    for i in range(len(problem.clean)):

        def metric(logits: Tensor, i: int = i) -> Tensor:
            return problem.metric(logits.expand(len(problem.clean), -1, -1))[i]

        prompt = slice(i, i + 1)
        try:
            result = theirs.attribution_patch(
                bridge, problem.clean[prompt], problem.corrupted[prompt], metric, config
            )
        except ValueError as refused:
            raise ConfigError(f"TransformerLens refuses the model: {refused}") from None
        for place, score in _named(result).items():
            if place in where:
                estimates[i, where[place]] = score
    return estimates


def _bridge(problem: Problem) -> Any:
    if isinstance(problem.model, BridgedModel):
        return problem.model.module
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    converted = (to_gpt2 if problem.transformer.cfg.norm == "layer" else to_llama)(
        problem.transformer
    )
    return build_bridge_from_module(
        converted, type(converted).__name__, hf_config=converted.config
    ).eval()


def _named(result: Any) -> dict[tuple[Any, ...], float]:
    """Return the scores of heads, or of edges between heads, keyed by our node names, summed over
    positions.
    """
    total: dict[tuple[Any, ...], float] = defaultdict(float)
    if not result.edge_scores:
        for node, score in result.node_scores.items():
            total[node.layer, node.head] += score
    for (writer, reader), score in result.edge_scores.items():
        total[
            writer.layer, writer.head, reader.layer, reader.head, reader.kind.removesuffix("_input")
        ] += score
    return total


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
        return linear(
            problem,
            nodes,
            problem.clean,
            lambda place, activation: activation - corrupted[place],
            explicit,
        )
