"""Scores of methods against exact effects: ranks, recall, signs, faithfulness and cost."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

from ihlab.attribution import TRUE_LEAST
from ihlab.attribution.circuits import (
    DRAWS,
    Faithfulness,
    best_area,
    circuits,
    mask_of,
    orders,
)
from ihlab.attribution.estimates import NotFiniteError, examined
from ihlab.attribution.methods import LIBRARIES, METHODS
from ihlab.attribution.problems import Problem, over_prompts
from ihlab.attribution.truth import exact_effects
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks.config import ConfigError, choose

RESAMPLES = 1000
"""Bootstrap samples of the prompts."""

REGRET_NODES = 12
"""The most nodes for which `compare` measures all circuits: 4,096, seconds on our models."""

CONTROLS = ("constant", "random", "previous-position")
"""The methods that know nothing about the model. Every table has them."""

TRUTHS = ("effect", "reverse")
"""The columns of `exact` that can serve as ground truth."""

COLUMNS = [
    "method",
    "rank_correlation",
    "low",
    "high",
    "recall",
    "sign_errors",
    "cpr",
    "cmd",
    "cpr_gap",
    "regret",
]
COLUMNS += ["forward", "backward", "seconds", "relative", "note"]


@own_settings()
def compare(
    problem: Problem,
    methods: Iterable[str] | None = None,
    nodes: str = "head",
    truth: str = "effect",
    libraries: bool = False,
) -> pd.DataFrame:
    """Score methods against `exact`. The table has one row per method, and the `CONTROLS` last.

    `methods` defaults to all that can handle the nodes. Methods of other libraries (`LIBRARIES`)
    can take minutes, and are run only if `libraries` is true. `truth`: the column of `exact` that
    is the ground truth, "effect" or "reverse". Methods estimate the effect in either case.

    - `rank_correlation`: Spearman's, of |estimate| with |exact effect| over nodes; `low`, `high`:
      its 95% percentile interval over bootstrap samples of the prompts (Efron and Tibshirani 1993).
      0 if all estimates are equal;
    - `recall`: the fraction of the n true nodes that are among the n largest |estimates|, NaN if no
      node is true or all are. A node is true if its |effect| is at least `TRUE_LEAST` of the swing;
      no node is unless `Problem.answered`;
      `sign_errors`: how many true nodes have an estimate that is 0 or has the wrong sign;
    - `cpr`: the area below the faithfulness (`Faithfulness`) of circuits that keep ever more nodes,
      ranked by effect in the direction of the swing; `cmd`: the area between faithfulness and 1,
      ranked by |effect| (MIB, Mueller et al. 2025, arXiv 2504.13151); NaN for nodes other than
      heads; `cpr_gap`: cpr of the true effects minus cpr of the method;
      `regret`: the area below the best circuits of every size minus cpr (`best_area`), NaN for more
      than `REGRET_NODES` nodes;
    - `forward`, `backward`: passes of all prompts through the model; `seconds`, and `relative` to
      those of exact patching. A method's first call in a process can be slower: it may load
      libraries;
    - `note`: why a method gives no estimates. Without `methods`, a method that refuses the problem
      has a row of NaN; one with estimates that are not finite always has.

    Ties are averaged: recall and areas are means over the orders of equal estimates (`orders`). The
    rows of "random" and "previous-position" are means over their draws and over their first nodes,
    with the 2.5% and 97.5% quantiles of their rank correlation as `low` and `high`.

    Raises `ConfigError` as `attribute` does for a method that is named.
    """
    choose("truth", truth, TRUTHS)
    if methods is None:
        last = CONTROLS if libraries else (*CONTROLS, *LIBRARIES)
        names = [name for name in METHODS if name not in last]
    else:
        names = list(methods)
    names += [name for name in CONTROLS if name not in names]
    for name in names:
        choose("method", name, METHODS)
    effects, exact_cost = examined(problem, "exact", nodes)
    right = effects
    if truth != "effect":
        right = -exact_effects(problem.swapped, nodes)
    measured = Faithfulness(problem) if nodes == "head" else None
    scores = ProblemScores(problem, over_prompts(right), measured)
    rows: list[dict[str, Any]] = []
    for method in tracked(names, "methods"):
        row: dict[str, Any] = {"method": method, "note": ""}
        rows.append(row)
        if method in CONTROLS:
            row |= scores.control(method, nodes) | dict.fromkeys(exact_cost, 0.0)
            continue
        try:
            estimates, cost = effects, exact_cost
            if method != "exact":
                estimates, cost = examined(problem, method, nodes)
        except ConfigError as refused:
            if methods is not None and not isinstance(refused, NotFiniteError):
                raise
            row["note"] = str(refused)
            continue
        row |= scores.of(over_prompts(estimates)) | interval(estimates, right) | cost
    table = pd.DataFrame(rows, columns=COLUMNS)
    gap = scores.of(over_prompts(right))["cpr"] - table["cpr"]
    return table.assign(cpr_gap=gap, relative=table["seconds"] / exact_cost["seconds"])


class ProblemScores:
    """Scores mean estimates of a problem against its mean effects.

    `measured`: the faithfulness of its circuits, which areas need. With at most `REGRET_NODES`
    nodes, all circuits are measured for the regret.
    """

    def __init__(
        self,
        problem: Problem,
        effect: Float[np.ndarray, " node"],
        measured: Faithfulness | None = None,
    ) -> None:
        self.problem, self.effect, self.measured = problem, without_noise(effect), measured
        self.true = np.abs(effect) >= TRUE_LEAST * abs(problem.swing)
        if not problem.answered:
            self.true = np.zeros_like(self.true)
        self.circuits = None
        if measured is not None and len(effect) <= REGRET_NODES:
            self.circuits = circuits(problem, measured=measured)

    def of(self, estimate: Float[np.ndarray, " node"]) -> dict[str, float]:
        """Return the scores of estimates; see `compare`."""
        estimate = without_noise(estimate)
        size = np.abs(estimate)
        wrong = np.sign(estimate) != np.sign(self.effect)
        scores = {
            "rank_correlation": float(rank_correlations(size[None], np.abs(self.effect)[None])[0]),
            "recall": expected_recall(size, self.true),
            "sign_errors": float(wrong[self.true].sum()),
        }
        return scores | self._areas(estimate)

    def control(self, method: str, nodes: str) -> dict[str, float]:
        """Return the scores of a control: means over its draws, and the interval of its rank
        correlation.
        """
        rows = pd.DataFrame([self.of(estimate) for estimate in drawn(self.problem, method, nodes)])
        low, high = rows["rank_correlation"].quantile([0.025, 0.975])
        scores: dict[str, float] = {str(name): mean for name, mean in rows.mean().items()}
        return scores | {"low": low, "high": high}

    def _areas(self, estimate: Float[np.ndarray, " node"]) -> dict[str, float]:
        """Return CPR, CMD and regret, mean over the orders of equal estimates."""
        if self.measured is None:
            return dict.fromkeys(("cpr", "cmd", "regret"), np.nan)
        fractions, signed = self.measured.curves(estimate * np.sign(self.problem.swing))
        _, absolute = self.measured.curves(np.abs(estimate))
        cpr = float(np.trapezoid(signed, fractions).mean())
        cmd = float(np.trapezoid(np.abs(1 - absolute), fractions).mean())
        best = np.nan if self.circuits is None else best_area(self.circuits)
        return {"cpr": cpr, "cmd": cmd, "regret": best - cpr}

    def worst_ablation(self, estimate: Float[np.ndarray, " node"]) -> float:
        """Return the lowest faithfulness of a circuit of the n nodes with the largest estimates, if
        n nodes are true.

        The other nodes are patched in every combination. NaN if recall is NaN, or if not all
        circuits are measured.
        """
        n = int(self.true.sum())
        if self.circuits is None or n in (0, len(self.true)):
            return np.nan
        mask, f = self.circuits["mask"], self.circuits["faithfulness"]
        lowest = []
        for order in orders(-np.abs(without_noise(estimate))):
            circuit = mask_of(order[:n])
            lowest.append(f[mask & circuit == circuit].min())
        return float(np.mean(lowest))


def drawn(problem: Problem, method: str, nodes: str) -> list[Float[np.ndarray, " node"]]:
    """Return the estimates of a control, one array for each of its draws."""
    option, draws = {
        "constant": (None, 1),
        "previous-position": ("start", len(problem.nodes(nodes))),
        "random": ("seed", DRAWS),
    }[method]
    estimates = []
    for draw in range(draws):
        options = {option: draw} if option else {}
        estimates.append(over_prompts(torch.as_tensor(METHODS[method](problem, nodes, **options))))
    return estimates


NOISE = 1e-5
"""An estimate or an effect below this fraction of the largest one is a rounding error of float32,
and counts as 0.
"""


def without_noise(x: Float[np.ndarray, "*draw node"]) -> Float[np.ndarray, "*draw node"]:
    """Return estimates or effects with rounding errors as 0: their order differs between
    processors.
    """
    largest = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    return np.where(np.abs(x) < NOISE * largest, 0, x)


def interval(
    estimates: Float[Tensor, "prompt node"], truth: Float[Tensor, "prompt node"]
) -> dict[str, float]:
    """Return the 95% interval of the rank correlation, `low` and `high`; see `compare`. NaN for one
    prompt.
    """
    n = len(truth)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)  # how often each prompt
    means = (counts @ each.double().cpu().numpy() for each in (estimates, truth))
    sample = rank_correlations(*(np.abs(without_noise(each)) for each in means))
    if n < 2 or np.isnan(sample).all():
        return {"low": np.nan, "high": np.nan}
    low, high = np.nanquantile(sample, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def expected_recall(size: Float[np.ndarray, " node"], true: Bool[np.ndarray, " node"]) -> float:
    """Return the fraction of the n true nodes among the n largest, mean over the orders of equal
    ones.

    NaN if no node is true, and if all are: then every order has recall 1.
    """
    n = int(true.sum())
    if n in (0, len(true)):
        return np.nan
    last = np.sort(size)[-n]
    above, tied = size > last, size == last
    return float(true[above].sum() + (n - above.sum()) * true[tied].mean()) / n


def rank_correlations(
    x: Float[np.ndarray, "row node"], y: Float[np.ndarray, "row node"]
) -> Float[np.ndarray, " row"]:
    """Return Spearman's rank correlation of each row; 0 where all x are equal, NaN where all y are."""
    a, b = (stats.rankdata(each, axis=1) - (each.shape[1] + 1) / 2 for each in (x, y))
    with np.errstate(invalid="ignore"):
        correlations = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.where((a == 0).all(axis=1) & (b != 0).any(axis=1), 0.0, correlations)
