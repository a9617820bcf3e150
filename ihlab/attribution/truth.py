"""The exact effect of every head, input of a head, and edge: activation patching, many nodes in one
batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.activations import (
    Patch,
    Place,
    activations,
    clean_and_corrupted,
    holding,
    in_each_layer,
    patched,
    require_paths,
)
from ihlab.attribution.problems import INPUTS, Problem, table_of, with_all_metrics
from ihlab.interp.ablation import Head
from ihlab.runtime.settings import own_settings


@own_settings()
def exact(
    problem: Problem, nodes: str = "head", layers: Sequence[int] | None = None
) -> pd.DataFrame:
    """Patch every node of a kind exactly. The table has one row per node, in the order of
    `Problem.nodes`.

    - `effect`: the metric on the corrupted prompts with the node's activation from the clean ones,
      minus the metric on the corrupted prompts, mean over prompts;
    - `reverse`: the metric on the clean prompts, minus the metric there with the node's activation
      from the corrupted ones. The two differ where several heads do the same work: then one clean
      head can suffice, and none is needed;
    - `fraction`, `reverse_fraction`: the same, divided by the swing (clean minus corrupted metric).

    `nodes`: "head" patches a head's z (its output before W_O) at all positions. "input" patches
    only the head's queries, keys or values, after the shift and before rotation; other heads that
    share them keep their own. "edge" patches the direct path from a head to an input of a head in a
    later layer, as `path_patch` does. "position" patches a head's z only at positions of one name
    (`POSITIONS`), which needs the prompts of a task. In a Hugging Face model, patching inputs and
    edges needs a class of `FAMILY` (Llama and its relatives). `layers`: only nodes of these layers;
    an edge has both ends in them. Raises `ConfigError` for layers that do not exist, and for inputs
    and edges of other models.
    """
    problem = replace(problem)  # the metric is measured again, whatever has changed
    table = table_of(problem, nodes, exact_effects(problem, nodes, layers), layers)
    reverse = table_of(problem, nodes, -exact_effects(problem.swapped, nodes, layers), layers)
    return table.assign(reverse=reverse["effect"], reverse_fraction=reverse["fraction"])


def exact_effects(
    problem: Problem, nodes: str, layers: Sequence[int] | None = None
) -> Float[Tensor, "prompt node"]:
    """Return the change of each prompt's metric when a node is patched from its clean into its
    corrupted prompt.
    """
    return effects_by_metric([problem], nodes, layers)[0]


@own_settings()
@torch.no_grad()
def effects_by_metric(
    problems: Sequence[Problem], nodes: str, layers: Sequence[int] | None = None
) -> list[Float[Tensor, "prompt node"]]:
    """Return the exact effects of problems that differ only in their metric, from the same forward
    passes.
    """
    first = problems[0]
    first.nodes(nodes, layers)  # refuses an unknown kind
    chosen = range(first.model.n_layers) if layers is None else sorted(set(layers))
    patched_z = {"head": _heads, "input": _inputs, "edge": _edges, "position": _positions}[nodes]
    patches: list[Patch] = []
    for place, of_layer in patched_z(first, chosen):
        for head in range(first.model.n_heads):
            patches += [{place: ([head], z)} for z in of_layer]
    values = patched(with_all_metrics(problems), first.corrupted, patches)
    return [(values[:, i] - each.ends[1]).T for i, each in enumerate(problems)]


LayerZ = Iterator[tuple[Place, list[Float[Tensor, "batch pos head d_head"]]]]
"""The place of a layer's z, and z for each of the nodes that one head has there."""


def _heads(problem: Problem, layers: Sequence[int]) -> LayerZ:
    for place, z in activations(problem, problem.clean, [("z", layer) for layer in layers]).items():
        yield place, [z]


def _positions(problem: Problem, layers: Sequence[int]) -> LayerZ:
    """Yield z that is clean at some positions, and elsewhere that of the corrupted prompt."""
    places = [("z", layer) for layer in layers]
    clean, corrupted = clean_and_corrupted(problem, places)
    masks = problem.position_masks()[..., None, None]
    for place in places:
        yield place, [torch.where(mask, clean[place], corrupted[place]) for mask in masks]


def _inputs(problem: Problem, layers: Sequence[int]) -> LayerZ:
    """Yield z from runs where the whole layer reads one clean input. Heads share no z."""
    clean = activations(problem, problem.clean, in_each_layer(problem, *INPUTS))
    for layer in layers:
        place, z = ("z", layer), []
        for kind in INPUTS:
            edits = holding(clean, [(kind, layer)])
            z.append(activations(problem, problem.corrupted, [place], edits)[place])
        yield place, z


def _edges(problem: Problem, layers: Sequence[int]) -> LayerZ:
    paths = patched_paths(problem, layers, INPUTS, "z")
    while of_layer := list(islice(paths, len(INPUTS))):  # all inputs of one layer
        yield ("z", of_layer[0][1]), [z for *_, z in of_layer]


@torch.no_grad()
def patched_paths(
    problem: Problem, layers: Sequence[int], inputs: Sequence[str], kind: str
) -> Iterator[tuple[Head, int, str, Tensor]]:
    """Yield a layer's z or pattern (`kind`) when it reads one input that is patched along a path
    from one sender.

    Each item is the sender, the later layer, the input, and the activation on the corrupted
    prompts. All heads of the layer read this input from the residual stream in which the sender's
    own output is that of the clean prompts. Senders come layer by layer, then layers, then inputs.
    """
    require_paths(problem)
    places = [("result", layer) for layer in layers]
    clean, corrupted = clean_and_corrupted(problem, places)
    for place in places:
        for head in range(problem.model.n_heads):
            change = (clean[place] - corrupted[place])[:, :, head]
            for late in layers:
                if late <= place[1]:
                    continue
                ends = [(each, late) for each in inputs]
                moved = {("resid_pre", late): change.add}
                read = activations(problem, problem.corrupted, ends, moved)
                for end in ends:
                    holds = holding(read, [end])
                    value = activations(problem, problem.corrupted, [(kind, late)], holds)
                    yield (place[1], head), late, end[0], value[kind, late]
