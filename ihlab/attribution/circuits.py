"""All circuits of a model: the faithfulness of every set of nodes, the best sets, and each node's
Shapley value.
"""

from collections.abc import Iterable, Sequence
from itertools import permutations, product
from math import factorial, prod
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import special

from ihlab.attribution.activations import Patch, activations, in_each_layer, patched
from ihlab.attribution.problems import INPUTS, Problem, with_all_metrics
from ihlab.interp.head_model import OurModel
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks.config import require

MOST_NODES = 16
"""Maximum number of nodes for which every set of nodes is measured: 65,536 sets."""

MOST_KEPT = 32
"""Maximum number of circuit sizes on a faithfulness curve, besides the empty circuit."""

DRAWS, FEW_DRAWS, DRAWN_NODES = 200, 8, 8
"""Orders of tied nodes over which a score is averaged: `DRAWS` for at most `DRAWN_NODES` nodes,
else `FEW_DRAWS`.
"""

AT_A_TIME = 256
"""Number of circuits that are measured in one step of the progress bar."""


class Faithfulness:
    """The faithfulness of circuits of a problem. Each circuit is measured once.

        f(S) = (m(S) - m(none)) / (m(all) - m(none)),   m(S): the metric on clean prompts with the nodes S kept, every
                                                        other node patched from the corrupted
                                                        prompts.

    The nodes of a circuit are heads or inputs; embeddings and MLPs are always kept. A circuit is a
    bit mask: bit i is node i of `Problem.nodes`.
    """

    def __init__(self, problem: Problem, nodes: str = "head") -> None:
        self.problem, table = problem, problem.nodes(nodes)
        kinds: tuple[str, ...] = ("z",)
        if nodes == "input":
            kinds = INPUTS
        else:
            table["input"] = "z"
        columns = table[["input", "layer", "head"]]
        self.places = list(columns.itertuples(index=False, name=None))
        self.all = (1 << len(table)) - 1
        self._corrupted = activations(problem, problem.corrupted, in_each_layer(problem, *kinds))
        self.metric: dict[int, float] = {}

    def __call__(self, circuits: Iterable[int]) -> Float[np.ndarray, " circuit"]:
        """Return the faithfulness of circuits. NaN if no circuit can change the metric."""
        wanted = list(circuits)
        self.metric |= self.measured([0, self.all, *wanted])
        none, whole = self.metric[0], self.metric[self.all]
        with np.errstate(invalid="ignore", divide="ignore"):
            return (np.array([*map(self.metric.get, wanted)]) - none) / np.float64(whole - none)

    def measured(self, circuits: Iterable[int]) -> dict[int, Any]:
        """Return the mean metric of the circuits that `metric` does not have."""
        missing = [each for each in dict.fromkeys(circuits) if each not in self.metric]
        of_circuit: dict[int, Any] = {}
        for start in tracked(range(0, len(missing), AT_A_TIME), "patching circuits"):
            some = missing[start : start + AT_A_TIME]
            patches = [self._without(each) for each in some]
            metric = patched(self.problem, self.problem.clean, patches)
            of_circuit |= dict(zip(some, metric.double().mean(dim=-1).tolist(), strict=True))
        return of_circuit

    def _without(self, circuit: int) -> Patch:
        heads: dict[tuple[str, int], list[int]] = {}
        for node, (kind, layer, head) in enumerate(self.places):
            if not circuit >> node & 1:
                heads.setdefault((kind, layer), []).append(head)
        return {place: (of_place, self._corrupted[place]) for place, of_place in heads.items()}

    def curves(
        self, size: Float[np.ndarray, " node"], draws: int | None = None
    ) -> tuple[Float[np.ndarray, " size"], Float[np.ndarray, "order size"]]:
        """Return fractions of kept nodes, and the faithfulness of the circuits that keep the nodes
        of largest `size`.

        There is one curve for each order of tied nodes: all orders if there are at most `draws`,
        else `draws` random ones. The fractions are spaced evenly, unlike MIB's: our models have few
        heads.
        """
        n = len(size)
        counts = np.unique(np.linspace(0, n, min(n, MOST_KEPT) + 1).round().astype(int))
        draws = draws or (DRAWS if n <= DRAWN_NODES else FEW_DRAWS)
        circuits = []
        for order in orders(-size, draws):
            circuits += [mask_of(order[:k]) for k in counts]
        return counts / n, self(circuits).reshape(-1, len(counts))


def faithfulness_by_metric(problems: Sequence[Problem]) -> list[Faithfulness]:
    """Return the faithfulness of all sets of heads, for problems that differ only in their metric.

    All metrics come from the same passes. The problems have at most `MOST_NODES` heads.
    """
    each = [Faithfulness(problem) for problem in problems]
    together = Faithfulness(with_all_metrics(problems))
    for circuit, metrics in together.measured(range(together.all + 1)).items():
        for faithfulness, metric in zip(each, metrics, strict=True):
            faithfulness.metric[circuit] = metric
    return each


def mask_of(nodes: Iterable[int]) -> int:
    """Return the circuit that keeps these nodes, as a bit mask."""
    return sum(1 << int(node) for node in nodes)


def orders(x: Float[np.ndarray, " node"], draws: int) -> list[list[int]]:
    """Return orders of the nodes by rising x: every order of ties, or `draws` random orders (seed
    0) if fewer.
    """
    ties = [np.flatnonzero(x == value) for value in np.unique(x)]
    if prod(factorial(min(len(tie), 12)) for tie in ties) <= draws:
        drawn: Iterable[Any] = product(*map(permutations, ties))
    else:
        rng = np.random.default_rng(0)
        drawn = ([*map(rng.permutation, ties)] for _ in range(draws))
    return [np.concatenate(parts).astype(int).tolist() for parts in drawn]


@own_settings()
def circuits(
    problem: Problem, nodes: str = "head", measured: Faithfulness | None = None
) -> pd.DataFrame:
    """Measure every circuit. The table has one row per set of nodes, in the order of its bit mask.

    Columns: `mask` (bit i: node i of `Problem.nodes` is kept), `size` (number of kept nodes) and
    `faithfulness` (see `Faithfulness`). It takes 2^nodes forward passes of all prompts: seconds for
    8 nodes; for 16 heads in four layers (64 prompts of 79 tokens) an hour and a half on one core.
    Raises `ConfigError` for more than `MOST_NODES` nodes, for edges, and for inputs of a model with
    grouped keys. `measured` caches the measured circuits, for later curves.
    """
    require(nodes in ("head", "input"), f"A circuit has heads or inputs, but nodes is {nodes!r}.")
    require(
        curves_known(problem, nodes),
        "Sets of inputs can be patched in ihlab's own models whose heads share no keys: choose nodes='head'.",
    )
    measured = measured or Faithfulness(problem, nodes)
    n = len(measured.places)
    require(
        n <= MOST_NODES,
        f"The model has {n} nodes, but all circuits can be measured of at most {MOST_NODES}.",
    )
    masks = np.arange(1 << n)
    size = np.bitwise_count(masks).astype(int)
    return pd.DataFrame({"mask": masks, "size": size, "faithfulness": measured(masks.tolist())})


def curves_known(problem: Problem, nodes: str) -> bool:
    """Return whether sets of these nodes can be patched: heads, and inputs of our models if no
    heads share a key.
    """
    if nodes != "input" or not isinstance(problem.model, OurModel):
        return nodes == "head"
    return problem.transformer.cfg.kv_heads == problem.model.n_heads


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the best circuit of every size, from the table of `circuits`: its rows, in the order
    of size.
    """
    return table.loc[table.groupby("size")["faithfulness"].idxmax()].reset_index(drop=True)


def best_area(table: pd.DataFrame) -> float:
    """Return the area below the best circuits of every size: the CPR of an ideal method (`circuits`
    gives the table).

    It is an upper limit for methods that rank nodes, because the best circuits of two sizes need
    not be nested.
    """
    curve = best(table)
    return float(np.trapezoid(curve["faithfulness"], curve["size"] / curve["size"].max()))


@own_settings()
def shapley(problem: Problem) -> pd.DataFrame:
    """Return the heads with their `shapley` value (`shapley_values`). Raises `ConfigError` as
    `circuits` does.
    """
    faithfulness = circuits(problem)["faithfulness"].to_numpy()
    return problem.nodes("head").assign(shapley=shapley_values(faithfulness))


def shapley_values(faithfulness: Float[np.ndarray, " circuit"]) -> Float[np.ndarray, " node"]:
    """Return what each node adds to the faithfulness of all circuits, mean over all orders of the
    nodes.

        sum over sets S without i of |S|! (n - |S| - 1)! / n! (f(S and i) - f(S))       (Shapley 1953)

    The circuits are in the order of their bit mask. The values add up to 1.
    """
    n = len(faithfulness).bit_length() - 1
    masks = np.arange(len(faithfulness))
    size = np.bitwise_count(masks)
    k = np.arange(n)
    weight = 1 / (n * special.comb(n - 1, k))  # k! (n - k - 1)! / n!
    value = []
    for node in range(n):
        without = masks[masks >> node & 1 == 0]
        gain = faithfulness[without | 1 << node] - faithfulness[without]
        value.append((weight[size[without]] * gain).sum())
    return np.array(value)
