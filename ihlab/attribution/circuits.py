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
from ihlab.attribution.problems import Problem, with_all_metrics
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks.config import require

MOST_NODES = 16
"""Maximum number of heads for which every set of heads is measured: 65,536 sets."""

MOST_KEPT = 32
"""Maximum number of circuit sizes on a faithfulness curve, besides the empty circuit."""

DRAWS, FEW_DRAWS, DRAWN_NODES = 200, 8, 8
"""Orders of tied nodes over which a score is averaged: `DRAWS` for at most `DRAWN_NODES` nodes,
else `FEW_DRAWS`.
"""

AT_A_TIME = 256
"""Number of circuits that are measured in one step of the progress bar."""


class Faithfulness:
    """The faithfulness of circuits of heads of a problem. Each circuit is measured once.

        f(S) = (m(S) - m(none)) / (m(all) - m(none)),   m(S): the metric on clean prompts with the nodes S kept, every
                                                        other node patched from the corrupted
                                                        prompts.

    Embeddings and MLPs are always kept. A circuit is a bit mask: bit i is head i of
    `Problem.nodes`.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.heads = list(problem.nodes("head").itertuples(index=False, name=None))
        self.all = (1 << len(self.heads)) - 1
        self._corrupted = activations(problem, problem.corrupted, in_each_layer(problem, "z"))
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
        for node, (layer, head) in enumerate(self.heads):
            if not circuit >> node & 1:
                heads.setdefault(("z", layer), []).append(head)
        return {place: (of_place, self._corrupted[place]) for place, of_place in heads.items()}

    def curves(
        self, size: Float[np.ndarray, " node"]
    ) -> tuple[Float[np.ndarray, " size"], Float[np.ndarray, "order size"]]:
        """Return fractions of kept nodes, and the faithfulness of the circuits that keep the nodes
        of largest `size`.

        There is one curve for each of the `orders` of tied nodes. The fractions are spaced evenly,
        unlike MIB's: our models have few heads.
        """
        n = len(size)
        counts = np.unique(np.linspace(0, n, min(n, MOST_KEPT) + 1).round().astype(int))
        circuits = []
        for order in orders(-size):
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


def orders(x: Float[np.ndarray, " node"]) -> list[list[int]]:
    """Return orders of the nodes by rising x: every order of ties, or `DRAWS` random orders (seed
    0) if fewer.
    """
    draws = DRAWS if len(x) <= DRAWN_NODES else FEW_DRAWS
    ties = [np.flatnonzero(x == value) for value in np.unique(x)]
    if prod(factorial(min(len(tie), 12)) for tie in ties) <= draws:
        drawn: Iterable[Any] = product(*map(permutations, ties))
    else:
        rng = np.random.default_rng(0)
        drawn = ([*map(rng.permutation, ties)] for _ in range(draws))
    return [np.concatenate(parts).astype(int).tolist() for parts in drawn]


@own_settings()
def circuits(problem: Problem, measured: Faithfulness | None = None) -> pd.DataFrame:
    """Measure every circuit. The table has one row per set of heads, in the order of its bit mask.

    Columns: `mask` (bit i: head i of `Problem.nodes` is kept), `size` (number of kept heads) and
    `faithfulness` (see `Faithfulness`). It takes 2^heads forward passes of all prompts: seconds for
    8 heads; for 16 heads in four layers (64 prompts of 79 tokens) an hour and a half on one core.
    Raises `ConfigError` for more than `MOST_NODES` heads. `measured` caches the measured circuits,
    for later curves.
    """
    measured = measured or Faithfulness(problem)
    n = len(measured.heads)
    require(
        n <= MOST_NODES,
        f"The model has {n} heads, but all circuits can be measured of at most {MOST_NODES}.",
    )
    masks = np.arange(1 << n)
    size = np.bitwise_count(masks).astype(int)
    return pd.DataFrame({"mask": masks, "size": size, "faithfulness": measured(masks.tolist())})


def best_area(table: pd.DataFrame) -> float:
    """Return the area below the best circuits of every size: the CPR of an ideal method (`circuits`
    gives the table).

    It is an upper limit for methods that rank nodes, because the best circuits of two sizes need
    not be nested.
    """
    best = table.groupby("size")["faithfulness"].max()
    return float(np.trapezoid(best, best.index / best.index.max()))


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
