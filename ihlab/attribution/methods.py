"""The package's methods. Each names the published variant that it is; each estimates the column `effect` of `exact`."""

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import START, activations, given
from ihlab.attribution.linear import differences, linear
from ihlab.attribution.problems import Problem
from ihlab.attribution.registry import METHODS, register_method
from ihlab.attribution.truth import exact_effects
from tasks.config import require_integer

__all__ = ["METHODS"]

Estimates = Float[Tensor, "prompt node"]

register_method("exact")(exact_effects)


@register_method("attribution-patching")
def attribution_patching(p: Problem, nodes: str, frozen_norms: bool = False) -> Estimates:
    """(clean - corrupted activation) . gradient on the corrupted prompt: Nanda 2023; edges: EAP, arXiv 2310.10348."""
    return linear(p, nodes, differences(p, nodes), p.corrupted, frozen_norms=frozen_norms)


@register_method("eap-ig")
def eap_ig(p: Problem, nodes: str, steps: int = 5, frozen_norms: bool = False) -> Estimates:
    """EAP with integrated gradients (EAP-IG inputs, arXiv 2403.17806), for edges, inputs or heads.

    The gradient is the mean over k = 1 .. steps of that at x(corrupted) + k / steps (x(clean) - x(corrupted)), where x
    is the residual stream before the first layer: all inputs move together. Five steps are the paper's.
    """
    require_integer("steps", steps, 1)
    start, end = (activations(p, tokens, [START])[START] for tokens in (p.corrupted, p.clean))
    change = differences(p, nodes)
    found = []
    for k in range(1, steps + 1):
        at = {START: start + k / steps * (end - start)}
        found.append(linear(p, nodes, change, p.clean, given(at, at), frozen_norms))
    return torch.stack(found).mean(dim=0)
