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
    DRAWN_NODES,
    DRAWS,
    FEW_DRAWS,
    Faithfulness,
    best_area,
    circuits,
    curves_known,
    mask_of,
    orders,
)
from ihlab.attribution.estimates import NotFiniteError, estimated, examined
from ihlab.attribution.libraries import LIBRARIES, METHODS
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

COLUMNS = ["method", "rank_correlation", "low", "high", "recall", "sign_errors", "cpr", "cmd", "cpr_gap", "regret"]
COLUMNS += ["forward", "backward", "seconds", "relative", "note"]

_called_before: set[str] = set()


@own_settings()
def compare(
    problem: Problem,
    methods: Iterable[str] | None = None,
    nodes: str = "head",
    truth: str = "effect",
    libraries: bool = False,
) -> pd.DataFrame:
    """Score methods against `exact`. The table has one row per method, and the `CONTROLS` last.

    `methods` defaults to all that can handle the nodes. Methods of other libraries (`LIBRARIES`) can take minutes, and
    are run only if `libraries` is true. `truth`: the column of `exact` that is the ground truth, "effect" or "reverse".
    Methods estimate the effect in either case.

    - `rank_correlation`: Spearman's, of |estimate| with |exact effect| over nodes; `low`, `high`: its 95% percentile
      interval over bootstrap samples of the prompts (Efron and Tibshirani 1993). 0 if all estimates are equal;
    - `recall`: the fraction of the n true nodes that are among the n largest |estimates|, NaN if no node is true or all
      are. A node is true if its |effect| is at least `TRUE_LEAST` of the swing; no node is unless `Problem.answered`;
      `sign_errors`: how many true nodes have an estimate that is 0 or has the wrong sign;
    - `cpr`: the area below the faithfulness (`Faithfulness`) of circuits that keep ever more nodes, ranked by effect
      in the direction of the swing; `cmd`: the area between faithfulness and 1, ranked by |effect| (MIB, Mueller et al.
      2025, arXiv 2504.13151); NaN for edges and for inputs of models with grouped keys; `cpr_gap`: cpr of the exact
      effects minus cpr of the method; `regret`: the area below the best circuits of every size minus cpr
      (`best_area`), NaN for more than `REGRET_NODES` nodes;
    - `forward`, `backward`: passes of all prompts through the model; `seconds`, and `relative` to those of exact
      patching. A method's first call in a process is not timed, because it may load libraries;
    - `note`: why a method gives no estimates. Without `methods`, a method that refuses the problem has a row of NaN;
      one with estimates that are not finite always has.

    Ties are averaged: recall and areas are means over the orders of equal estimates (`orders`). The rows of "random"
    and "previous-position" are means over their draws and over their first nodes, with the 2.5% and 97.5% quantiles of
    their rank correlation as `low` and `high`.

    Raises `ConfigError` as `attribute` does for a method that is named.
    """
    choose("truth", truth, TRUTHS)
    default = [name for name in METHODS if libraries or name not in LIBRARIES]
    asked = list(default if methods is None else methods)
    names = [name for name in asked if methods is not None or name not in CONTROLS]
    names += [name for name in CONTROLS if name not in names]
    for name in names:
        choose("method", name, METHODS)
    effects, exact_cost = _timed(problem, "exact", nodes)
    scores = ProblemScores(problem, nodes, effects if truth == "effect" else -exact_effects(problem.swapped, nodes))
    rows: list[dict[str, Any]] = []
    for method in tracked(names, "methods"):
        try:
            if method in CONTROLS:
                rows.append({"method": method, **scores.control(method), **dict.fromkeys(exact_cost, 0.0), "note": ""})
                continue
            estimates, cost = (effects, exact_cost) if method == "exact" else _timed(problem, method, nodes)
        except ConfigError as refused:
            if methods is not None and not isinstance(refused, NotFiniteError):
                raise
            rows.append({"method": method, "note": str(refused)})
            continue
        rows.append({"method": method, **scores.scores(estimates), **cost, "note": ""})
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.assign(relative=table["seconds"] / exact_cost["seconds"])


class ProblemScores:
    """Scores estimates of a problem against its ground truth, and keeps the circuits that were measured.

    `brief`: areas for heads only, regret for at most `DRAWN_NODES` heads, and few orders of equal estimates.
    """

    def __init__(self, problem: Problem, nodes: str, truth: Float[Tensor, "prompt node"], brief: bool = False) -> None:
        self.problem, self.nodes, self.truth = problem, nodes, truth
        self.draws = FEW_DRAWS if brief or truth.shape[1] > DRAWN_NODES else DRAWS
        self.sign = np.sign(problem.swing)
        self.swing = problem.swing if problem.answered else np.inf  # inf: no node is true
        known = nodes == "head" if brief else curves_known(problem, nodes)
        self.measured = Faithfulness(problem, nodes) if known else None
        self.best_area, self.circuits = np.nan, None
        if self.measured is not None and truth.shape[1] <= (DRAWN_NODES if brief else REGRET_NODES):
            self.circuits = circuits(problem, nodes, self.measured)
            self.best_area = best_area(self.circuits)
        self.exact_cpr, _ = self._areas(over_prompts(truth))

    def scores(self, estimates: Float[Tensor, "prompt node"]) -> dict[str, float]:
        """Return the scores of estimates; see `compare`."""
        return self._with_areas(agreement(estimates, self.truth, self.swing), over_prompts(estimates))

    def scores_of_mean(self, estimate: Float[np.ndarray, " node"]) -> dict[str, float]:
        """Return the scores of estimates that are means over prompts: those of `scores` without an interval."""
        return self._with_areas(scores_of_means(estimate, over_prompts(self.truth), self.swing), estimate)

    def control(self, method: str) -> dict[str, float]:
        """Return the scores of a control: means over its draws."""
        n = self.truth.shape[1]
        if method == "constant":
            return self.scores(estimated(self.problem, method, self.nodes))
        option, draws = ("start", range(n)) if method == "previous-position" else ("seed", range(DRAWS))
        drawn = [
            over_prompts(torch.as_tensor(METHODS[method](self.problem, self.nodes, **{option: draw}))) for draw in draws
        ]
        effect = over_prompts(self.truth)
        rows = [scores_of_means(estimate, effect, self.swing) for estimate in drawn]
        measured = drawn[:: -(-len(drawn) // self.draws)]
        areas = pd.DataFrame([self._with_areas({}, estimate) for estimate in measured])
        mean = pd.concat([pd.DataFrame(rows).mean(), areas.mean()]).to_dict()
        low, high = np.quantile([row["rank_correlation"] for row in rows], [0.025, 0.975])
        return mean | {"low": float(low), "high": float(high)}

    def _with_areas(self, scores: dict[str, float], estimate: Float[np.ndarray, " node"]) -> dict[str, float]:
        cpr, cmd = self._areas(estimate)
        gaps = {"cpr_gap": self.exact_cpr - cpr, "regret": self.best_area - cpr}
        return scores | {"cpr": cpr, "cmd": cmd, "worst_ablation": self._worst_ablation(estimate)} | gaps

    def _worst_ablation(self, estimate: Float[np.ndarray, " node"]) -> float:
        """Return the lowest faithfulness of a circuit of the n nodes with the largest estimates, if n nodes are true.

        The other nodes are patched in every combination. NaN if recall is NaN, or if not all circuits are measured.
        """
        size, effect = np.abs(estimate), over_prompts(self.truth)
        n = int((np.abs(effect) >= TRUE_LEAST * abs(self.swing)).sum())
        if self.circuits is None or n in (0, len(size)):
            return np.nan
        mask, f = self.circuits["mask"], self.circuits["faithfulness"]
        chosen = [mask_of(order[:n]) for order in orders(-size, self.draws)]
        return float(np.mean([f[mask & circuit == circuit].min() for circuit in chosen]))

    def _areas(self, estimate: Float[np.ndarray, " node"]) -> tuple[float, float]:
        """Return CPR and CMD, mean over the orders of equal estimates."""
        if self.measured is None:
            return np.nan, np.nan
        fractions, signed = self.measured.curves(estimate * self.sign, self.draws)
        _, absolute = self.measured.curves(np.abs(estimate), self.draws)
        cpr, cmd = np.trapezoid(signed, fractions), np.trapezoid(np.abs(1 - absolute), fractions)
        return float(cpr.mean()), float(cmd.mean())


def agreement(
    estimates: Float[Tensor, "prompt node"], truth: Float[Tensor, "prompt node"], swing: float
) -> dict[str, float]:
    """Return rank correlation with its interval, recall and sign errors; see `compare`."""
    x, y = (each.double().cpu().numpy() for each in (estimates, truth))
    n = len(x)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)  # how often each prompt
    sample = rank_correlations(np.abs(drawn @ x), np.abs(drawn @ y))
    low, high = np.nanquantile(sample, [0.025, 0.975]) if not np.isnan(sample).all() else (np.nan, np.nan)
    return scores_of_means(x.mean(axis=0), y.mean(axis=0), swing) | {"low": float(low), "high": float(high)}


def scores_of_means(
    estimate: Float[np.ndarray, " node"], effect: Float[np.ndarray, " node"], swing: float
) -> dict[str, float]:
    """Return rank correlation, recall and sign errors of mean estimates; see `compare`."""
    true = np.abs(effect) >= TRUE_LEAST * abs(swing)
    return {
        "rank_correlation": float(rank_correlations(np.abs(estimate)[None], np.abs(effect)[None])[0]),
        "recall": expected_recall(np.abs(estimate), true),
        "sign_errors": float((np.sign(estimate) != np.sign(effect))[true].sum()),
    }


def expected_recall(size: Float[np.ndarray, " node"], true: Bool[np.ndarray, " node"]) -> float:
    """Return the fraction of the n true nodes among the n largest, mean over the orders of equal ones.

    NaN if no node is true, and if all are: then every order has recall 1.
    """
    n = int(true.sum())
    if n in (0, len(true)):
        return np.nan
    last = np.sort(size)[-n]
    above, tied = size > last, size == last
    return float(true[above].sum() + (n - above.sum()) * true[tied].mean()) / n


def rank_correlations(x: Float[np.ndarray, "row node"], y: Float[np.ndarray, "row node"]) -> Float[np.ndarray, " row"]:
    """Return Spearman's rank correlation of each row; 0 where all x are equal, NaN where all y are."""
    a, b = (stats.rankdata(each, axis=1) - (each.shape[1] + 1) / 2 for each in (x, y))
    with np.errstate(invalid="ignore"):
        correlations = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.where((a == 0).all(axis=1) & (b != 0).any(axis=1), 0.0, correlations)


def _timed(problem: Problem, method: str, nodes: str) -> tuple[Float[Tensor, "prompt node"], dict[str, float]]:
    if method not in _called_before:
        examined(problem, method, nodes)
        _called_before.add(method)
    return examined(problem, method, nodes)
