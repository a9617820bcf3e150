"""The leaderboard: scores of the stored entries for each kind of nodes and method, with each method's worst setting."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ihlab.study import stats
from ihlab.suite.bench import KINDS, SCORES, Entry, settings
from ihlab.suite.standard import VERSION
from ihlab.suite.template import filled

TITLES = {"head": "Heads", "input": "Inputs of heads", "position": "Heads at positions", "edge": "Edges between heads"}


def scores_table(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return one row per method and setting: the columns of `settings`, `method`, and `SCORES`."""
    rows = [
        {"method": entry["method"], "key": key, **dict(zip(SCORES, values, strict=True))}
        for entry in entries
        for key, values in entry["scores"].items()
    ]
    table = pd.DataFrame(rows, columns=["method", "key", *SCORES]).astype(dict.fromkeys(SCORES, float))
    return table.merge(settings(), on="key", validate="many_to_one")


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per kind of nodes and method from a `scores_table`, the best rank correlation first.

    Columns: `settings` (their number), the mean of each score over members' means, `low` and `high` of `rank` (95%,
    Student's t over members), `worst_rank` with its `worst_setting`, `worst_recall`, `largest_low`, `largest_high` (5%
    and 95% of the settings; `largest` is the median), `worst_gap`, `worst_regret` and `lowest_ablation`.
    """
    rows = []
    for (nodes, method), group in table.groupby(["nodes", "method"], sort=False):
        ranks = group.groupby("member")["rank"].mean().dropna()
        interval = stats.mean(ranks.tolist(), (-1.0, 1.0)) if len(ranks) > 1 else None
        worst: Any = group["rank"].idxmin() if group["rank"].notna().any() else None
        low, high = group["largest"].quantile([0.05, 0.95])
        rows.append(
            {"nodes": nodes, "method": method, "settings": len(group)}
            | group.groupby("member")[list(SCORES)].mean().mean().to_dict()
            | {
                "low": interval.low if interval else np.nan,
                "high": interval.high if interval else np.nan,
                "largest": group["largest"].median(),
                "largest_low": low,
                "largest_high": high,
                "worst_rank": group["rank"].min(),
                "worst_setting": "" if worst is None else group["key"][worst].rpartition("/")[0],
                "worst_recall": group["recall"].min(),
                "worst_gap": group["cpr_gap"].max(),
                "worst_regret": group["regret"].max(),
                "lowest_ablation": group["worst_ablation"].min(),
            }
        )
    order = {nodes: i for i, nodes in enumerate(KINDS)}
    return (
        pd.DataFrame(rows)
        .sort_values(["nodes", "rank"], key=lambda x: x.map(order) if x.name == "nodes" else -x, kind="stable")
        .reset_index(drop=True)
    )


def page(entries: Iterable[Entry]) -> str:
    """Return the leaderboard of entries as Markdown."""
    listed = list(entries)
    table = scores_table(listed)
    overall = summary(table)
    there = set(overall["nodes"])
    heads = table[table["nodes"] == "head"]
    order = overall[overall["nodes"] == "head"]["method"]
    columns = ("corruption", "metric", "member")
    return filled(
        "leaderboard",
        version=VERSION,
        titles={nodes: title for nodes, title in TITLES.items() if nodes in there},
        overall=overall.to_dict("records"),
        passes={entry["method"]: entry["passes"] for entry in listed},
        by={column: heads.pivot_table("rank", "method", column, sort=False).reindex(order) for column in columns},
    )
