"""Read, change and patch a model's activations, many nodes in one batch, and take gradients of a
metric at them.

A place names an activation: ("z", 1) is `blocks.1.attn.hook_z`. A model of another library has the
places z, those of `HuggingFaceModel.changing`, and ("resid_pre", 0), which is its token embedding.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.attribution.problems import INPUTS, Problem, require_finite
from ihlab.interp.head_model import OurModel
from ihlab.interp.hugging_face import HuggingFaceModel
from ihlab.interp.patching import require_direct_paths, require_plain_output
from tasks.config import require

Place = tuple[str, int]
Edits = Mapping[Place, Callable[[Tensor], Tensor]]
Patch = Mapping[Place, tuple[list[int], Float[Tensor, "batch pos head d_head"]]]
"""The heads of each place whose activation is replaced, and the replacement."""

START: Place = ("resid_pre", 0)
"""The residual stream before the first layer."""

OF_BLOCK = ("resid_pre", "attn_out", "mlp_out")
"""Kinds of places in a layer that lie outside its attention."""

OF_LLAMA = (*INPUTS, "result", "resid_pre")
"""Kinds of places, besides z, in a Hugging Face model with Llama's block."""

MOST_LOGITS = 2**20
"""Maximum number of logits computed at a time, unless the prompts alone have more. Larger batches
do not fit in the processor's cache, and take up to 1.6 times as long."""


def edited(problem: Problem, edits: Edits) -> AbstractContextManager[Any]:
    """Pass activations through functions while the context is open. Raises as `Problem.transformer`
    does.
    """
    with ExitStack() as stack:
        for place, function in edits.items():
            stack.enter_context(_hooked(problem, place, function))
        return stack.pop_all()


def _hooked(problem: Problem, place: Place, function: Callable[[Tensor], Tensor]) -> Any:
    kind, layer = place
    if isinstance(problem.model, OurModel):
        hook: Any = (_name(place), lambda x, hook: function(x))
        return problem.transformer.hooks(fwd_hooks=[hook])
    if place == START:
        return problem.model.embed.register_forward_hook(lambda module, args, x: function(x))
    if kind == "z":
        return problem.model.replacing({layer: function})
    if kind in OF_LLAMA and isinstance(problem.model, HuggingFaceModel):
        return problem.model.changing(kind, layer, function)
    return problem.transformer  # refuses


def require_paths(problem: Problem) -> None:
    """Raise `ConfigError` if one of our models cannot have inputs patched along a path."""
    if isinstance(problem.model, OurModel):
        last = problem.model.n_layers - 1
        require_direct_paths(problem.transformer, 0, last)
        for layer in range(last):
            require_plain_output(problem.transformer, layer)


def _name(place: Place) -> str:
    kind, layer = place
    if "." in kind:  # a hook point's whole name, such as a norm's, which need not belong to a layer
        return kind
    return f"blocks.{layer}.hook_{kind}" if kind in OF_BLOCK else f"blocks.{layer}.attn.hook_{kind}"


def holding(values: Mapping[Place, Tensor], places: Iterable[Place]) -> Edits:
    """Return edits that replace the activations of `places` by these values."""
    return {place: partial(lambda value, _: value, values[place]) for place in places}


def in_each_layer(problem: Problem, *kinds: str) -> list[Place]:
    """Return the places of the given kinds in every layer."""
    return [(kind, layer) for kind in kinds for layer in range(problem.model.n_layers)]


def noting(x: dict[Place, Tensor], places: Iterable[Place], edits: Edits | None = None) -> Edits:
    """Return edits that apply `edits`, then write the activations of `places` into x."""
    edits = edits or {}

    def noted(place: Place) -> Callable[[Tensor], Tensor]:
        def function(value: Tensor) -> Tensor:
            x[place] = edits[place](value) if place in edits else value
            return x[place]

        return function

    return {place: noted(place) for place in dict.fromkeys([*edits, *places])}


@torch.no_grad()
def activations(
    problem: Problem,
    tokens: Int[Tensor, "batch pos"],
    places: Sequence[Place],
    edits: Edits | None = None,
) -> dict[Place, Tensor]:
    """Return activations on the tokens, while `edits` change other activations.

    Raises `ConfigError` for `START` in a model of another library that also reads ids outside its
    token embedding.
    """
    if START in places:
        problem.model.require_ids_read_once()
    x: dict[Place, Tensor] = {}
    with edited(problem, noting(x, places, edits)):
        problem.model.differentiable_logits(tokens)
    return x


def clean_and_corrupted(
    problem: Problem, places: Sequence[Place]
) -> tuple[dict[Place, Tensor], dict[Place, Tensor]]:
    """Return activations on the clean and on the corrupted prompts. Raises `ConfigError` as
    `activations` does.
    """
    clean = activations(problem, problem.clean, places)
    return clean, activations(problem, problem.corrupted, places)


@torch.no_grad()
def patched(
    problem: Problem, tokens: Int[Tensor, "batch pos"], patches: Sequence[Patch]
) -> Float[Tensor, "patch *metric batch"]:
    """Return the metric of each prompt with each patch applied. One batch holds one copy of the
    prompts per patch.

    Raises `ConfigError` for a metric that is not finite.
    """
    at_a_time = max(1, MOST_LOGITS // (tokens.numel() * problem.model.d_vocab))
    metrics = []
    for start in range(0, len(patches), at_a_time):
        some = patches[start : start + at_a_time]
        edits = {}
        for place in set().union(*some):
            edits[place] = _replacing([patch.get(place) for patch in some])
        with edited(problem, edits):
            logits = problem.model.differentiable_logits(tokens.repeat(len(some), 1))
        metrics += [problem.metric(each) for each in logits.unflatten(0, (len(some), -1))]
    return require_finite(torch.stack(metrics))


def _replacing(of_patch: Sequence[tuple[list[int], Tensor] | None]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        copies = x.clone().unflatten(0, (len(of_patch), -1))
        for copy, patch in zip(copies, of_patch, strict=True):
            if patch is not None:
                copy[:, :, patch[0]] = patch[1][:, :, patch[0]]
        return copies.flatten(0, 1)

    return function


@torch.enable_grad()
def gradients(
    problem: Problem,
    tokens: Int[Tensor, "batch pos"],
    places: Sequence[Place],
    edits: Edits | None = None,
    noted: Sequence[Place] = (),
) -> tuple[dict[Place, Tensor], dict[Place, Tensor]]:
    """Return activations, still in their graph, and the gradient of each prompt's metric with
    respect to them.

    `noted` are further places whose activations are returned. The gradient is 0 where the metric
    does not depend on a place. The weights' own gradients are left as they are. Raises
    `ConfigError` for a metric without a gradient, and for tensors made in torch's inference mode.
    """
    x: dict[Place, Tensor] = {}
    edits = dict(edits or {})
    start = edits.get(START, lambda value: value)
    # Frozen weights alone would give no graph.
    edits[START] = lambda value: start(value).detach().requires_grad_()
    with edited(problem, noting(x, [*places, *noted], edits)):
        try:
            metric = problem.measured(tokens)
        except RuntimeError as error:
            require(
                "Inference tensors cannot be saved" not in str(error),
                "A weight of the model, or a tensor of the metric, was made in torch.inference_mode, so that "
                "there is no gradient: make it outside.",
            )
            raise
    require(
        metric.requires_grad,
        "The metric has no gradient, which this method needs: give a differentiable one, such as a logit difference.",
    )
    by = [x[place] for place in places]
    slopes = torch.autograd.grad(metric.sum(), by, retain_graph=True, materialize_grads=True)
    return x, dict(zip(places, slopes, strict=True))
