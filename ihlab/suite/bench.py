"""The bench: run a method on the standard set, and score its estimates against three truths.

The truths are the exact effect of a node, its exact effect in reverse (corrupted patched into
clean), and (heads of small models) the Shapley value over all circuits. `ihlab.suite.entries`
reads, checks and writes what the bench measures.
"""

from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.circuits import Faithfulness, faithfulness_by_metric, shapley_values
from ihlab.attribution.estimates import examined
from ihlab.attribution.methods import LIBRARIES, METHODS
from ihlab.attribution.problems import Problem, over_prompts
from ihlab.attribution.scores import (
    CONTROLS,
    ProblemScores,
    drawn,
    rank_correlations,
    without_noise,
)
from ihlab.attribution.truth import effects_by_metric
from ihlab.runtime.settings import own_settings
from ihlab.suite.standard import VERSION, digest_of_set, standard_problems, standard_set
from tasks.config import ConfigError, choose, require

Entry = dict[str, Any]
Estimate = Float[np.ndarray, " node"]

KINDS = {"head": 1, "input": 3, "position": 4, "edge": 3}
"""The kinds of nodes, and how many there are per head (for edges, a minimum with two or more heads
per layer).
"""

FEWEST = 4
"""Settings with fewer nodes (as `KINDS` counts them) are left out: a few nodes have hardly any
ranks.
"""

HARDER_METRICS = ("logit-difference", "probability")
"""The metrics that score inputs, positions, edges, and all nodes of models of more than two layers.
"""

SMALL = 8
"""All circuits are measured of models with at most so many heads."""

SCORES = (
    "rank", "reverse_rank", "shapley_rank", "first", "recall", "sign_errors", "largest", "regret", "worst_ablation",
)  # fmt: skip
"""The scores of a setting.

- `rank`, `reverse_rank`, `shapley_rank`: Spearman's correlation of |estimate| with the size of each
  of the `TRUTHS`;
- `first`: 1 if the node with the largest |effect| has the largest |estimate|, else 0;
- `recall`: the fraction of the n true nodes among the n largest |estimates|;
- `sign_errors`: the fraction of true nodes with an estimate of the wrong sign;
- `largest`: estimate / effect of the node with the largest |effect|;
- `regret`: the area below the best circuits of every size minus the area below those of the
  estimates;
- `worst_ablation`: the lowest faithfulness of the n heads with the largest estimates, over all
  ablations of the other heads, where n heads are true.

`shapley_rank`, `regret` and `worst_ablation` are those of heads, in models of at most `SMALL`
heads. Equal estimates count by expectation. A setting without a score has NaN.
"""

TRUTHS = ("exact", "exact-reverse", "shapley")
"""The truths: `effect` and `reverse` of `exact`, and Shapley's value as a part of the swing. Each
has an entry.
"""

SLOW_METHODS = ("integrated-gradients",)
"""Methods that take more passes than exact patching. They are run only if they are named."""


def settings(quick: bool = False, members: Sequence[str] = ()) -> pd.DataFrame:
    """Return the settings of the bench: rows of the standard set with `nodes`, a `key`, and whether
    they are `ranked`.

    Heads are scored on the whole standard set, but in models of more than two layers only by
    `HARDER_METRICS`. Inputs, positions and edges are scored at the last step by `HARDER_METRICS`;
    in models of more than two layers only for "key" and the logit difference, and edges in at most
    three layers. The leaderboard ranks methods on the settings of models of at most two layers, at
    the last step. `quick`: of the ranked settings, only those whose corruption is "key" and whose
    metric is the logit difference. `members`: only these. Raises `ConfigError` for a member that is
    not in the set, or has no such setting.
    """
    table = standard_set().merge(pd.DataFrame({"nodes": list(KINDS)}), how="cross")
    head, deep = table["nodes"] == "head", table["layers"] > 2
    plain = (table["corruption"] == "key") & (table["metric"] == HARDER_METRICS[0])
    harder = table["metric"].isin(HARDER_METRICS)
    enough = table["heads"] * table["nodes"].map(KINDS) >= FEWEST
    edges_fit = (table["nodes"] != "edge") | table["layers"].isin((2, 3))
    of_heads = head & (harder | ~deep)
    of_others = ~head & table["last"] & harder & (plain | ~deep)
    chosen = enough & edges_fit & (of_heads | of_others)
    ranked = table["last"] & ~deep
    if quick:
        chosen &= plain & ranked
    for member in members:
        choose("member of the standard set", member, table["member"].unique())
        require(
            member in [*table["member"][chosen]], f"{member} has no quick setting: leave quick out."
        )
    if members:
        chosen &= table["member"].isin(members)
    columns = ["member", "step", "corruption", "metric", "nodes"]
    key = table[columns].astype(str).agg("/".join, axis=1)
    return table.assign(key=key, ranked=ranked)[chosen].reset_index(drop=True)


def default_methods() -> list[str]:
    """Return what the bench measures by default: the truths and all methods but slow ones and other
    libraries'.
    """
    methods = [name for name in METHODS if name not in (*LIBRARIES, *SLOW_METHODS)]
    return list(dict.fromkeys([*TRUTHS, *methods]))


def new_entry(method: str) -> Entry:
    """Return an entry without measurements."""
    about = {"method": method, "standard_set": VERSION, "digest": digest_of_set()}
    return about | {"passes": None, "notes": {}, "estimates": {}, "scores": {}}


@own_settings()
def run_bench(
    methods: Mapping[str, Entry | None],
    table: pd.DataFrame,
    report: Callable[[str], None] = lambda line: None,
    save: Callable[[dict[str, Entry]], None] = lambda entries: None,
) -> dict[str, Entry]:
    """Return an entry per method, measured in the settings of a table.

    `methods` maps names to entries whose estimates are scored, or to None for one of `METHODS` or
    `TRUTHS`, which is measured. A setting that a method refuses, or where a user's method fails, is
    left out of its entry, and the reason is a note. A scored entry keeps its passes and notes.
    `report` gets a line before each problem, `save` all entries after each. Raises `ConfigError`
    for an unknown method.
    """
    entries = {name: new_entry(name) for name in methods}
    for name, entry in methods.items():
        if entry is not None:
            entries[name] |= {"passes": entry["passes"], "notes": dict(entry["notes"])}
        elif name not in TRUTHS:
            choose("method", name, METHODS)
    costs: dict[str, list[list[float]]] = {name: [] for name in methods}
    groups: Any = table.groupby(["member", "step", "corruption"], sort=False)
    for number, ((member, step, corruption), group) in enumerate(groups, 1):
        report(f"{number} of {groups.ngroups} problems: {member}, step {step}, {corruption}")
        by_metric = standard_problems(member, step, corruption)
        for kind, rows in group.groupby("nodes", sort=False):
            problems = [by_metric[metric] for metric in rows["metric"]]
            measured = measured_settings(problems, str(kind))
            for key, setting in zip(rows["key"], measured, strict=True):
                for name, entry in entries.items():
                    cost = _measure(setting, key, entry, methods[name])
                    if cost and kind == "head":
                        costs[name].append([cost["forward"], cost["backward"]])
        for name, of_method in costs.items():
            if of_method:
                entries[name]["passes"] = significant(np.mean(of_method, axis=0))
        save(entries)
    return entries


def _measure(setting: "Setting", key: str, entry: Entry, stored: Entry | None) -> dict[str, float]:
    """Write a method's estimates and scores in a setting into its entry; return its cost if it was
    run.
    """
    method: str = entry["method"]
    cost: dict[str, float] = {}
    try:
        if stored is not None and (stored["estimates"] or method not in CONTROLS):
            estimate = setting.stored_estimate(key, stored)
        elif method in CONTROLS:
            entry["scores"][key] = significant(setting.scores_of_control(method))
            return {}
        elif method in TRUTHS:
            estimate = setting.truth(method)
        else:
            estimate, cost = _run(setting, method)
    except ConfigError as refused:
        entry["notes"][key] = str(refused)
        return {}
    entry["estimates"][key] = significant(without_noise(estimate))
    entry["scores"][key] = significant(setting.scores(np.array(entry["estimates"][key])))
    return cost


def _run(setting: "Setting", method: str) -> tuple[Estimate, dict[str, float]]:
    """Return a method's estimates and its cost. A user's method that fails is refused, so that the
    others are still measured.
    """
    try:
        estimates, cost = examined(setting.problem, method, setting.nodes)
    except ConfigError:
        raise
    except Exception as error:
        home = METHODS[method].__module__
        if home.startswith("ihlab."):
            raise
        lines = [
            line
            for frame, line in walk_tb(error.__traceback__)
            if frame.f_globals["__name__"] == home
        ]
        place = f" in line {lines[-1]}" if lines else ""
        raise ConfigError(f"failed{place}: {type(error).__name__}: {error}") from error
    return over_prompts(estimates), cost


def measured_settings(problems: Sequence[Problem], nodes: str) -> list["Setting"]:
    """Return the settings of problems that differ only in their metric, with their truths."""
    effects = effects_by_metric(problems, nodes)
    reverse = effects_by_metric([each.swapped for each in problems], nodes)
    circuits: Sequence[Faithfulness | None] = [None] * len(problems)
    if nodes == "head" and len(problems[0].nodes("head")) <= SMALL:
        circuits = faithfulness_by_metric(problems)
    columns = zip(problems, effects, reverse, circuits, strict=True)
    return [Setting(nodes, *of_problem) for of_problem in columns]


class Setting:
    """A problem and a kind of nodes. `truths` are those of the `TRUTHS` that it has."""

    def __init__(
        self,
        nodes: str,
        problem: Problem,
        effects: Float[Tensor, "prompt node"],
        back: Float[Tensor, "prompt node"],
        circuits: Faithfulness | None,
    ) -> None:
        self.problem, self.nodes = problem, nodes
        self.truths = {"exact": over_prompts(effects), "exact-reverse": -over_prompts(back)}
        if circuits is not None:
            values = shapley_values(circuits(range(circuits.all + 1)))
            self.truths["shapley"] = values * problem.swing
        for name, truth in self.truths.items():  # as entries store it: equal on every processor
            self.truths[name] = np.array(significant(without_noise(truth)), dtype=float)
        self._scores = ProblemScores(problem, self.truths["exact"], circuits)

    def truth(self, name: str) -> Estimate:
        """Return one of the `TRUTHS`. Raises `ConfigError` for the Shapley values of too many heads
        or other nodes.
        """
        require(
            name in self.truths,
            f"Shapley values are those of heads, in models of at most {SMALL} heads.",
        )
        return self.truths[name]

    def scores(self, estimate: Estimate) -> list[float]:
        """Return the `SCORES` of estimates."""
        common, size, effect = self._scores.of(estimate), np.abs(estimate), self.truths["exact"]
        ranks, tied = {}, size == size.max()
        for name, truth in self.truths.items():
            ranks[name] = rank_correlations(size[None], np.abs(truth)[None])[0]
        true, largest = self._scores.true.sum(), np.abs(effect).argmax()
        of_largest = estimate[largest] / effect[largest] if effect[largest] else np.nan
        values = {
            "rank": ranks["exact"],
            "reverse_rank": ranks["exact-reverse"],
            "shapley_rank": ranks.get("shapley", np.nan),
            "first": tied[largest] / tied.sum(),
            "recall": common["recall"],
            "sign_errors": common["sign_errors"] / true if true else np.nan,
            "largest": of_largest,
            "regret": common["regret"],
            "worst_ablation": self._scores.worst_ablation(estimate),
        }
        return [values[name] for name in SCORES]

    def scores_of_control(self, method: str) -> list[float]:
        """Return the `SCORES` of a control: means over its draws. `largest` says nothing there."""
        scores = [self.scores(each) for each in drawn(self.problem, method, self.nodes)]
        rows = pd.DataFrame(scores, columns=SCORES)
        return rows.assign(largest=np.nan).mean().tolist()

    def stored_estimate(self, key: str, entry: Entry) -> Estimate:
        """Return the estimates of an entry. Raises `ConfigError` without any, and for another
        number of nodes.
        """
        require(key in entry["estimates"], f"The entry has no estimates for {key}.")
        estimate = np.array(entry["estimates"][key], dtype=float)
        n = len(self.problem.nodes(self.nodes))
        require(
            len(estimate) == n,
            f"The entry has {len(estimate)} numbers for {key}, but must have {n}.",
        )
        return estimate


def significant(values: Sequence[float] | Estimate) -> list[float | None]:
    """Return numbers with four significant digits, for JSON; NaN becomes None."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
