"""The leaderboard: every method on the same settings, held against three truths. Entries without
all of them are not ranked."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ihlab.attribution.scores import CONTROLS
from ihlab.study import stats
from ihlab.study.page import template
from ihlab.suite.bench import KINDS, SCORES, TRUTHS, Entry, settings
from ihlab.suite.standard import VERSION

RANKS = ("rank", "reverse_rank", "shapley_rank")
"""The scores that the order depends on, one for each of the `TRUTHS`. Only heads have the last."""


DEEP = ("hops-vanilla-3-layers", "hops-vanilla-4-layers")
"""Models of three and four layers, whose heads have a column of their own beside the ranked ones.
"""


def scores_table(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return one row per method and setting: the columns of `settings`, `method`, and `SCORES`."""
    rows = []
    for entry in entries:
        for key, values in entry["scores"].items():
            rows.append(
                {"method": entry["method"], "key": key, **dict(zip(SCORES, values, strict=True))}
            )
    table = pd.DataFrame(rows, columns=["method", "key", *SCORES]).astype(
        dict.fromkeys(SCORES, float)
    )
    return table.merge(settings(), on="key", validate="many_to_one")


def summary(entries: Iterable[Entry], table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per kind of nodes and method, from the scores in the settings of a table.

    - `settings`, `refused`: how many have scores, and how many the method refused; `whole`: whether
      it has all scores;
    - `SCORES`: means over members of their means over settings; `low` and `high` of `rank`: its 95%
      interval (Student's t over members); `worst`, `worst_setting`: the lowest rank;
      `worst_regret`: the largest one;
    - `lowest`: the lowest of the mean `RANKS`. The rows with all scores come first, ordered by it.

    A method without a setting of a kind of nodes, refused or not, has no row of this kind.
    """
    entries, rows = list(entries), []
    scores = scores_table(entries)
    scores = scores[scores["key"].isin(table["key"])]
    for nodes, wanted in table.groupby("nodes", sort=False):
        for entry in entries:
            refused = len(set(wanted["key"]) & (entry["notes"].keys() - entry["scores"].keys()))
            group = scores[(scores["method"] == entry["method"]) & (scores["nodes"] == nodes)]
            if len(group) or refused:
                row = {
                    "nodes": nodes,
                    "method": entry["method"],
                    "settings": len(group),
                    "refused": refused,
                }
                rows.append(row | {"whole": len(group) == len(wanted)} | _means(group))
    columns = ["nodes", "method", "settings", "refused", "whole", *SCORES, "low", "high"]
    means = pd.DataFrame(rows, columns=[*columns, "worst", "worst_setting", "worst_regret"])
    means = means.assign(
        lowest=means[list(RANKS)].min(axis=1), kind=means["nodes"].map(list(KINDS).index)
    )
    order = means.sort_values(
        ["kind", "whole", "lowest"], ascending=[True, False, False], kind="stable"
    )
    return order.drop(columns="kind").reset_index(drop=True)


def _means(group: pd.DataFrame) -> dict[str, Any]:
    by_member = group.groupby("member")[list(SCORES)].mean()
    row: dict[str, Any] = {str(name): mean for name, mean in by_member.mean().items()}
    ranks = by_member["rank"].dropna().tolist()
    if len(ranks) > 1:
        interval = stats.mean(ranks, (-1.0, 1.0))
        row |= {"low": interval.low, "high": interval.high}
    if group["rank"].notna().any():
        worst: Any = group["rank"].idxmin()
        row |= {
            "worst": group.loc[worst, "rank"],
            "worst_setting": group.loc[worst, "key"].rpartition("/")[0],
        }
    return row | {"worst_regret": group["regret"].max()}


def truths_by_corruption(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return how the truths agree about heads on the ranked settings, one row per corruption.

    Columns: the rank correlation of two pairs of `TRUTHS`, and the regret of two; means over
    members first.
    """
    table = scores_table(entries)
    table = table[table["ranked"] & (table["nodes"] == "head")]
    means = table.groupby(["method", "corruption", "member"], sort=False)[list(SCORES)].mean()
    by_corruption = means.groupby(level=["method", "corruption"], sort=False).mean()
    exact, shapley = by_corruption.loc["exact"], by_corruption.loc["shapley"]
    columns = {
        "effect, reverse": exact["reverse_rank"],
        "effect, Shapley": exact["shapley_rank"],
        "effect: regret": exact["regret"],
        "Shapley: regret": shapley["regret"],
    }
    return pd.DataFrame(columns)


def page(entries: Iterable[Entry]) -> str:
    """Return the leaderboard of entries as Markdown."""
    entries = list(entries)
    table = settings()
    ranked = table[table["ranked"]]
    trained = ranked[ranked["nodes"] == "head"]
    rows = summary(entries, ranked)
    heads, whole = rows[rows["nodes"] == "head"], rows[rows["whole"]]
    of_deep = table["member"].isin(DEEP) & (table["nodes"] == "head")
    deep = summary(entries, table[of_deep])
    informed = whole[(whole["nodes"] != "head") & ~whole["method"].isin(CONTROLS)]
    others = informed.pivot_table(list(RANKS[:2]), "method", "nodes", sort=False)
    has_truths = set(TRUTHS) <= set(whole["method"])
    return template(Path(__file__).with_name("leaderboard.md.jinja")).render(
        version=VERSION,
        counts=ranked["nodes"].value_counts().to_dict(),
        problems=trained.groupby(["member", "step", "corruption"]).ngroups,
        metrics=trained["metric"].nunique(),
        sizes=trained.groupby("member")["heads"].first().tolist(),
        heads=heads[heads["whole"]].to_dict("records"),
        deep=deep.set_index("method").to_dict("index"),
        n_deep=of_deep.sum(),
        others={method: others.loc[method] for method in others.index},
        partial=rows[~rows["whole"] & (rows["settings"] > 0)].to_dict("records"),
        passes={entry["method"]: entry["passes"] for entry in entries},
        truths=truths_by_corruption(entries) if has_truths else None,
        nan=np.nan,
    )
