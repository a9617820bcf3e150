"""Scores of methods against exact effects: ranks, recall, signs, faithfulness and cost."""

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from ihlab.attribution import TRUE_LEAST
from ihlab.attribution.activations import Patch, activations, layers_of, patched
from ihlab.attribution.estimates import estimated
from ihlab.attribution.libraries import METHODS
from ihlab.attribution.problems import INPUTS, Problem, counted
from ihlab.settings import own_settings
from tasks.config import ConfigError

RESAMPLES = 1000
"""Bootstrap samples of the prompts."""

MOST_KEPT = 32
"""The most sizes of a circuit on a faithfulness curve, besides none."""

COLUMNS = ["method", "rank_correlation", "low", "high", "recall", "sign_errors", "cpr", "cmd", "cpr_gap"]
COLUMNS += ["forward", "backward", "seconds", "relative", "note"]

_loaded: set[str] = set()


@own_settings()
def compare(p: Problem, methods: Iterable[str] | None = None, nodes: str = "head") -> pd.DataFrame:
    """Score methods (default: every one that can handle the nodes) against `exact`. The table has one row per method.

    - `rank_correlation`: Spearman's, of |estimate| with |exact effect| over nodes; `low`, `high`: its 95% percentile
      interval over bootstrap samples of the prompts (Efron and Tibshirani 1993);
    - `recall`: the fraction of the n true nodes (|effect| at least `TRUE_LEAST` of the swing) that are among the n
      largest |estimates|; `sign_errors`: how many true nodes have an estimate of the wrong sign, or 0;
    - `cpr`, `cmd`: areas of `faithfulness`, NaN for edges and for inputs under grouped keys; `cpr_gap`: the cpr of
      the exact effects minus this one;
    - `forward`, `backward`: passes of all prompts through the model; `seconds`, and `relative` to those of exact
      patching. A method's first call in a process is not timed, because it may load libraries;
    - `note`: why a method gives no estimates. Without `methods`, such a method has a row of NaN.

    Raises `ConfigError` as `attribute` does for a method that is named.
    """
    truth, exact_cost = _timed(p, "exact", nodes)
    best = _areas(p, truth, nodes)
    rows: list[dict[str, Any]] = []
    for method in METHODS if methods is None else methods:
        try:
            found, cost = (truth, exact_cost) if method == "exact" else _timed(p, method, nodes)
        except ConfigError as refused:
            if methods is not None:
                raise
            rows.append({"method": method, "note": str(refused)})
            continue
        cpr, cmd = _areas(p, found, nodes)
        scores = agreement(found, truth, p.swing) | {"cpr": cpr, "cmd": cmd, "cpr_gap": best[0] - cpr}
        rows.append(
            {"method": method, **scores, **cost, "relative": cost["seconds"] / exact_cost["seconds"], "note": ""}
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def agreement(
    found: Float[Tensor, "prompt node"], truth: Float[Tensor, "prompt node"], swing: float
) -> dict[str, float]:
    """Return rank correlation with its interval, recall and sign errors; see `compare`."""
    x, y = (each.double().cpu().numpy() for each in (found, truth))
    n = len(x)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)  # how often each prompt
    sample = rank_correlations(np.abs(drawn @ x), np.abs(drawn @ y))
    low, high = np.nanquantile(sample, [0.025, 0.975]) if not np.isnan(sample).all() else (np.nan, np.nan)
    estimate, effect = x.mean(axis=0), y.mean(axis=0)
    true = np.abs(effect) >= TRUE_LEAST * abs(swing)
    top = np.argsort(-np.abs(estimate), kind="stable")[: true.sum()]
    return {
        "rank_correlation": float(rank_correlations(np.abs(estimate)[None], np.abs(effect)[None])[0]),
        "low": float(low),
        "high": float(high),
        "recall": float(true[top].mean()) if true.any() else np.nan,
        "sign_errors": float((np.sign(estimate) != np.sign(effect))[true].sum()),
    }


def rank_correlations(x: Float[np.ndarray, "row node"], y: Float[np.ndarray, "row node"]) -> Float[np.ndarray, " row"]:
    """Return Spearman's rank correlation of each row; NaN where all numbers of one side are equal."""
    a, b = (stats.rankdata(each, axis=1) - (each.shape[1] + 1) / 2 for each in (x, y))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))


@own_settings()
def faithfulness(p: Problem, effects: Float[np.ndarray, " node"], nodes: str, absolute: bool = False) -> pd.DataFrame:
    """Return the faithfulness of circuits of the best nodes: columns `kept` (their fraction) and `faithfulness`.

        f(k) = (m(k) - m(0)) / (m(all) - m(0)),   m(k): the metric on clean prompts with the k largest effects kept,
                                                  every other node patched from the corrupted prompts.

    This is the curve of MIB (Mueller et al. 2025, arXiv 2504.13151), whose area under f is CPR and whose area between f
    and 1 is CMD. For CPR nodes are ranked by effect, for CMD by `absolute` effect. Circuits here have heads or inputs;
    embeddings and MLPs are always kept. Sizes are spaced evenly, unlike MIB's: our models have few heads.
    """
    table, kinds = p.nodes(nodes), ("z",) if nodes == "head" else INPUTS
    corrupted = activations(p, p.corrupted, layers_of(p, *kinds))
    kind = ["z"] * len(table) if nodes == "head" else table["input"].tolist()
    order = np.argsort(-np.abs(effects) if absolute else -effects, kind="stable")
    kept = np.unique(np.linspace(0, len(table), min(len(table), MOST_KEPT) + 1).round().astype(int))

    def without(rest: np.ndarray) -> Patch:
        heads: dict[tuple[str, int], list[int]] = {}
        for node in rest.tolist():
            heads.setdefault((kind[node], int(table["layer"].iloc[node])), []).append(int(table["head"].iloc[node]))
        return {place: (of_place, corrupted[place]) for place, of_place in heads.items()}

    metric = patched(p, p.clean, [without(order[k:]) for k in kept]).double().mean(dim=1).cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.DataFrame(
            {"kept": kept / len(table), "faithfulness": (metric - metric[0]) / (metric[-1] - metric[0])}
        )


def _areas(p: Problem, effects: Tensor, nodes: str) -> tuple[float, float]:
    """Return CPR and CMD."""
    if nodes == "edge" or (nodes == "input" and p.transformer.cfg.kv_heads < p.model.n_heads):
        return np.nan, np.nan
    mean = effects.double().mean(dim=0).cpu().numpy()
    signed, absolute = (faithfulness(p, mean, nodes, by) for by in (False, True))
    cpr = np.trapezoid(signed["faithfulness"], signed["kept"])
    return float(cpr), float(np.trapezoid((1 - absolute["faithfulness"]).abs(), absolute["kept"]))


def _timed(p: Problem, method: str, nodes: str) -> tuple[Float[Tensor, "prompt node"], dict[str, float]]:
    if method not in _loaded:
        estimated(p, method, nodes)
        _loaded.add(method)
    with counted(p) as passes:
        start = perf_counter()
        found = estimated(p, method, nodes)
        seconds = perf_counter() - start
    return found, {**passes, "seconds": seconds}
