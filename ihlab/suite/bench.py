"""The bench: run a method on the standard set, score its estimates against exact effects, store a checkable entry.

An entry is a dictionary, stored as JSON: `method`, `standard_set` (version), `estimates` (per key of a setting, one
number per node in the order of `Problem.nodes`), `scores` (per key, in the order of `SCORES`), `passes` (forward and
backward, mean over settings with heads) and `notes`. Only the first three are needed, so that estimates can come from
anywhere. To enter a circuit, give true or false for each node as its estimates.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution import TRUE_LEAST
from ihlab.attribution.estimates import examined
from ihlab.attribution.libraries import LIBRARIES, METHODS
from ihlab.attribution.problems import Problem, over_prompts
from ihlab.attribution.scores import CONTROLS, ProblemScores, rank_correlations
from ihlab.attribution.truth import effects_by_metric
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from ihlab.storage.stored import read_json
from ihlab.suite.standard import VERSION, standard_problems, standard_set
from tasks.config import ConfigError, require, shown

Entry = dict[str, Any]

KINDS = {"head": 1, "input": 3, "position": 4, "edge": 3}
"""The kinds of nodes, and how many there are per head (for edges, a minimum with two or more heads per layer)."""

FEWEST = 4
"""Settings with fewer nodes (as `KINDS` counts them) are left out: a few nodes have hardly any ranks."""

HARDER_METRICS = ("logit-difference", "probability")
"""The metrics that score inputs, positions, edges, and all nodes of models of more than two layers."""

SCORES = ("rank", "reverse_rank", "recall", "sign_errors", "cpr_gap", "largest", "regret", "worst_ablation")
"""The scores of a setting.

- `rank`, `reverse_rank`: Spearman's correlation of |estimate| with |effect|, and with |reverse|, of `exact`;
- `recall`: the fraction of the n true nodes among the n largest |estimates|;
- `sign_errors`: the fraction of true nodes with an estimate of the wrong sign;
- `cpr_gap`: the CPR of exact patching minus that of the estimates, for heads;
- `largest`: estimate / effect of the node with the largest |effect|;
- `regret`: the area below the best circuits of every size minus the CPR of the estimates, for at most 8 heads;
- `worst_ablation`: the lowest faithfulness of the n heads with the largest estimates, over all ablations of the other
  heads, where n heads are true. For at most 8 heads.
"""

NOTHING_RUN: Entry = {"passes": None, "notes": {}}

DEAR = ("integrated-gradients",)
"""Methods that take more passes than exact patching. They are run only if they are named."""


def settings(quick: bool = False, members: Sequence[str] = ()) -> pd.DataFrame:
    """Return the settings of the bench: rows of the standard set with `nodes` and a `key`.

    Heads are scored on the whole standard set, but in models of more than two layers only by `HARDER_METRICS`. Inputs,
    positions and edges are scored at the last step by `HARDER_METRICS`; in models of more than two layers only for
    "key" and the logit difference, and edges in at most three layers. `quick`: only the last step, "key" and the logit
    difference. `members`: only these. Raises `ConfigError` for a member that is not in the set.
    """
    table = standard_set().merge(pd.DataFrame({"nodes": list(KINDS)}), how="cross")
    for member in members:
        known = list(dict.fromkeys(table["member"]))
        require(member in known, f"The standard set has no member {member!r}: it has {', '.join(known)}.")
    head, edge, deep = table["nodes"] == "head", table["nodes"] == "edge", table["layers"] > 2
    plain = table["last"] & (table["corruption"] == "key") & (table["metric"] == HARDER_METRICS[0])
    harder = table["metric"].isin(HARDER_METRICS)
    chosen = table["heads"] * table["nodes"].map(KINDS) >= FEWEST
    chosen &= ~edge | table["layers"].isin((2, 3))
    chosen &= (head & (harder | ~deep)) | (~head & table["last"] & harder & (plain | ~deep))
    if quick:
        chosen &= plain
    if members:
        chosen &= table["member"].isin(members)
    columns = ["member", "step", "corruption", "metric", "nodes"]
    return table[chosen].assign(key=table[columns].astype(str).agg("/".join, axis=1)).reset_index(drop=True)


def default_methods() -> list[str]:
    """Return the methods that the bench runs by default: all but those of other libraries and those in `DEAR`."""
    return [name for name in METHODS if name not in (*LIBRARIES, *DEAR)]


@own_settings()
def run_bench(methods: Mapping[str, Entry | None], table: pd.DataFrame) -> dict[str, Entry]:
    """Return an entry per method, measured in the settings of a table.

    `methods` maps names to entries whose estimates are scored, or to None for a method of `METHODS`, which is run. A
    setting that a method refuses is left out of its entry, and the reason is a note. A scored entry keeps its passes
    and notes.
    """
    entries: dict[str, Entry] = {}
    for name, entry in methods.items():
        already = deepcopy({field: (entry or {}).get(field, value) for field, value in NOTHING_RUN.items()})
        entries[name] = {"method": name, "standard_set": VERSION, "estimates": {}, "scores": {}} | already
    passes: dict[str, list[list[float]]] = {name: [] for name in methods}
    groups: Any = table.groupby(["member", "step", "corruption"], sort=False)
    for (member, step, corruption), group in tracked(groups, "problems"):
        by_metric = standard_problems(member, step, corruption)
        for kind, rows in group.groupby("nodes", sort=False):
            nodes = str(kind)
            problems = [by_metric[metric] for metric in rows["metric"]]
            truths = cache(partial(_truths, problems, nodes))
            for i, key in enumerate(rows["key"]):
                setting = _Setting(problems[i], nodes, truths, i)
                for name, entry in entries.items():
                    try:
                        estimate, scores, cost = setting.measured(name, key, methods[name])
                    except ConfigError as refused:
                        entry["notes"][key] = str(refused)
                        continue
                    if estimate is not None:
                        entry["estimates"][key] = _rounded(estimate)
                    entry["scores"][key] = _rounded([scores[column] for column in SCORES])
                    if cost and nodes == "head":
                        passes[name].append([cost["forward"], cost["backward"]])
    for name, costs in passes.items():
        if costs:
            entries[name]["passes"] = _rounded(np.mean(costs, axis=0))
    return entries


def _truths(problems: Sequence[Problem], nodes: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return the exact effects of problems, and those of the reverse direction with the opposite sign."""
    return effects_by_metric(problems, nodes), effects_by_metric([problem.swapped for problem in problems], nodes)


class _Setting:
    """A problem of the standard set, with exact effects that are measured once a method gives estimates."""

    def __init__(self, problem: Problem, nodes: str, truths: Callable[[], tuple[list[Tensor], ...]], i: int) -> None:
        self.problem, self.nodes, self._truths, self._i = problem, nodes, truths, i

    @cached_property
    def effect(self) -> Float[np.ndarray, " node"]:
        return over_prompts(self._truths()[0][self._i])

    @cached_property
    def reverse(self) -> Float[np.ndarray, " node"]:
        return over_prompts(-self._truths()[1][self._i])

    @cached_property
    def scores(self) -> ProblemScores:
        return ProblemScores(self.problem, self.nodes, self._truths()[0][self._i], brief=True)

    def measured(
        self, method: str, key: str, entry: Entry | None
    ) -> tuple[Float[np.ndarray, " node"] | None, dict[str, float], dict[str, float]]:
        """Return the estimates of a method, its scores, and its cost if it was run."""
        if entry is None and method in CONTROLS:
            scores = self.scores.control(method)
            return None, self._named(scores) | {"reverse_rank": 0.0, "largest": np.nan}, {}
        cost: dict[str, float] = {}
        if entry is not None:
            require(key in entry["estimates"], f"The entry has no estimates for {key}.")
            estimate = np.array(entry["estimates"][key], dtype=float)
            n = len(self.effect)
            require(len(estimate) == n, f"The entry has {len(estimate)} numbers for {key}, but must have {n}.")
        elif method == "exact":
            estimate = self.effect
        else:
            estimates, cost = examined(self.problem, method, self.nodes)
            estimate = over_prompts(estimates)
        return estimate, self._scored(estimate), cost

    def _scored(self, estimate: Float[np.ndarray, " node"]) -> dict[str, float]:
        largest = np.abs(self.effect).argmax()
        return self._named(self.scores.scores_of_mean(estimate)) | {
            "reverse_rank": rank_correlations(np.abs(estimate)[None], np.abs(self.reverse)[None])[0],
            "largest": estimate[largest] / self.effect[largest] if self.effect[largest] else np.nan,
        }

    def _named(self, scores: dict[str, float]) -> dict[str, float]:
        true = (np.abs(self.effect) >= TRUE_LEAST * abs(self.scores.swing)).sum()
        errors = scores["sign_errors"] / true if true else np.nan
        return scores | {"rank": scores["rank_correlation"], "sign_errors": errors}


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Return numbers with four significant digits, for JSON; NaN becomes None."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def entry_text(entry: Entry) -> str:
    """Return an entry as JSON with one line per setting."""
    parts = []
    for name, value in entry.items():
        inside = value if isinstance(value, dict) else {}
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(numbers)}" for key, numbers in inside.items())
        parts.append(f"{json.dumps(name)}: " + (f"{{\n{lines}\n}}" if lines else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read_entry(path: str | Path) -> Entry:
    """Read an entry. Raises `ConfigError` for a file that is not one, and for settings or numbers that are wrong."""
    entry = read_json(Path(path))
    needed = {"method": str, "standard_set": int, "estimates": dict}
    for name, kind in needed.items():
        value = entry.get(name)
        require(isinstance(value, kind), f"{path}: {name} is {shown(value)}, but must be a {kind.__name__}.")
    version = entry["standard_set"]
    require(version == VERSION, f"{path} is of version {version} of the standard set, but this ihlab has {VERSION}.")
    known = set(settings()["key"])
    for key, values in {**entry["estimates"], **entry.get("scores", {})}.items():
        if key not in known:
            near = get_close_matches(key, known, 1)  # slow
            raise ConfigError(
                f"{path}: there is no setting {key!r}" + (f"; did you mean {near[0]!r}." if near else ".")
            )
        require(isinstance(values, list), f"{path}: the numbers of {key} are {shown(values)}, but must be a list.")
    for key, values in entry.get("scores", {}).items():
        right = len(values) == len(SCORES)
        require(right, f"{path}: {key} has {len(values)} scores, but must have {len(SCORES)}: leave out the scores.")
    for key, values in entry["estimates"].items():
        wrong = [value for value in values if not isinstance(value, int | float) or not np.isfinite(value)]
        require(not wrong, f"{path}: an estimate of {key} is {shown(wrong[:1])}, but must be a finite number.")
    entry = {"scores": {}} | deepcopy(NOTHING_RUN) | entry
    notes = entry["notes"]
    require(isinstance(notes, dict), f"{path}: notes is {shown(notes)}, but must be an object: a sentence by setting.")
    return entry


def differences(entry: Entry, members: Sequence[str] = ()) -> list[str]:
    """Measure an entry again, and return in words what differs: an empty list if all is as stored.

    Scores are computed again from the stored estimates, and must agree to `SAME_SCORE`. If the method is in `METHODS`,
    it is run again, and its estimates must agree to `SAME_ESTIMATE` of the largest one. Raises `ConfigError` for an
    entry without estimates whose method is not in `METHODS`.
    """
    require(
        bool(entry["estimates"]) or entry["method"] in METHODS,
        f"estimates is empty, and {shown(entry['method'])} is no method of ihlab: there is nothing to measure again.",
    )
    name = entry["method"]
    stored = settings(members=members)
    stored = stored[stored["key"].isin({*entry["estimates"], *entry["scores"]})]
    keys, differ = set(stored["key"]), []
    numbers = {which: {k: v for k, v in entry[which].items() if k in keys} for which in ("estimates", "scores")}
    if entry["estimates"]:
        [again] = run_bench({name: entry}, stored).values()
        differ += [f"{key}: {note}" for key, note in again["notes"].items() if note != entry["notes"].get(key)]
        differ += _differ(numbers["scores"], again["scores"], "scores", SAME_SCORE)
    if name in METHODS:
        [again] = run_bench({name: None}, stored).values()
        which, tolerance = ("estimates", SAME_ESTIMATE) if entry["estimates"] else ("scores", SAME_SCORE)
        differ += _differ(numbers[which], again[which], which, tolerance)
    return differ


SAME_SCORE, SAME_ESTIMATE = 0.02, 0.01


def _differ(stored: dict[str, Any], again: dict[str, Any], what: str, tolerance: float) -> list[str]:
    differ = [f"{key}: the entry has {what}, but they are missing now" for key in stored if key not in again]
    for key, values in again.items():
        if key in stored:
            x, y = (np.array(each, dtype=float) for each in (stored[key], values))
            scale = np.nanmax(np.abs(y), initial=0) if what == "estimates" else 1
            if x.shape != y.shape or not np.allclose(x, y, rtol=0, atol=tolerance * scale + 1e-9, equal_nan=True):
                differ.append(f"{key}: the {what} are {values}, but the entry has {stored[key]}")
    return differ
