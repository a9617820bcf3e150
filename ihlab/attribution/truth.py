"""The exact effect of every head, input of a head, and edge: activation patching, many nodes in one batch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import Patch, activations, holding, in_each_layer, patched
from ihlab.attribution.problems import INPUTS, Problem, table_of
from ihlab.interp.patching import patched_paths, require_own_patterns
from ihlab.settings import own_settings


@own_settings()
def exact(problem: Problem, nodes: str = "head") -> pd.DataFrame:
    """Patch every node of a kind exactly. The table has one row per node, in the order of `Problem.nodes`.

    - `effect`: the metric on the corrupted prompts with the node's activation from the clean ones, minus the metric on
      the corrupted prompts, mean over prompts;
    - `reverse`: the metric on the clean prompts, minus the metric there with the node's activation from the corrupted
      ones. The two differ where several heads do the same work: then one clean head can suffice, and none is needed;
    - `fraction`, `reverse_fraction`: the same, divided by the swing (clean minus corrupted metric).

    `nodes`: "head" patches a head's z (its output before W_O) at all positions. "input" patches only the head's
    queries, keys or values, after the shift and before rotation; other heads that share them keep their own.
    "edge" patches the direct path from a head to an input of a head in a later layer (`ihlab.interp.patching`).
    "position" patches a head's z only at positions of one name (`POSITIONS`), which needs the prompts of a task.
    Inputs and edges need a `Transformer`. Edges raise `ConfigError` as `path_patch` does.
    """
    problem = replace(problem)  # the metric is measured again, whatever has changed
    table = table_of(problem, nodes, exact_effects(problem, nodes))
    reverse = table_of(problem, nodes, -exact_effects(problem.swapped, nodes))
    return table.assign(reverse=reverse["effect"], reverse_fraction=reverse["fraction"])


@own_settings()
@torch.no_grad()
def exact_effects(problem: Problem, nodes: str) -> Float[Tensor, "prompt node"]:
    """Return the change of each prompt's metric when a node is patched from its clean into its corrupted prompt."""
    return effects_by_metric([problem], nodes)[0]


@own_settings()
@torch.no_grad()
def effects_by_metric(problems: Sequence[Problem], nodes: str) -> list[Float[Tensor, "prompt node"]]:
    """Return the exact effects of problems that differ only in their metric, from the same forward passes."""
    first = problems[0]
    first.nodes(nodes)  # refuses an unknown kind
    patches = list({"head": _heads, "input": _inputs, "edge": _edges, "position": _positions}[nodes](first))
    together = replace(first, metric=lambda logits: torch.stack([each.metric(logits) for each in problems]))
    values = patched(together, first.corrupted, patches)
    return [(values[:, i] - each.ends[1]).T for i, each in enumerate(problems)]


def _heads(problem: Problem) -> Iterator[Patch]:
    for place, z in activations(problem, problem.clean, in_each_layer(problem, "z")).items():
        for head in range(problem.model.n_heads):
            yield {place: ([head], z)}


def _positions(problem: Problem) -> Iterator[Patch]:
    """Yield patches of z at some positions. A head's z elsewhere stays that of the corrupted prompt."""
    places = in_each_layer(problem, "z")
    clean, corrupted = (activations(problem, tokens, places) for tokens in (problem.clean, problem.corrupted))
    for place in places:
        z = [torch.where(mask[..., None, None], clean[place], corrupted[place]) for mask in problem.position_masks()]
        for head in range(problem.model.n_heads):
            yield from ({place: ([head], at_positions)} for at_positions in z)


def _inputs(problem: Problem) -> Iterator[Patch]:
    """Yield patches of z: each head's z in a run where its whole layer reads another input. Heads share no z."""
    require_own_patterns(problem.transformer)
    clean = activations(problem, problem.clean, in_each_layer(problem, *INPUTS))
    for layer in range(problem.model.n_layers):
        place = ("z", layer)
        z = [
            activations(problem, problem.corrupted, [place], holding(clean, [(kind, layer)]))[place] for kind in INPUTS
        ]
        for head in range(problem.model.n_heads):
            yield from ({place: ([head], of_input)} for of_input in z)


def _edges(problem: Problem) -> Iterator[Patch]:
    z = {
        (sender, layer, kind): cache["z", layer]
        for sender, layer, kind, cache in patched_paths(
            problem.transformer, problem.corrupted, problem.clean, INPUTS, ("z",)
        )
    }
    for sender, layer in dict.fromkeys(path[:2] for path in z):
        for head in range(problem.model.n_heads):
            yield from ({("z", layer): ([head], z[sender, layer, kind])} for kind in INPUTS)
