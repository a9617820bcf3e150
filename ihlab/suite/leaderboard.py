"""The leaderboard: scores of the stored entries for each kind of nodes and method, with each method's worst setting."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ihlab.study import stats
from ihlab.study.markdown import table as markdown
from ihlab.suite.bench import KINDS, SCORES, Entry, settings
from ihlab.suite.standard import VERSION

HEAD = """# The leaderboard of attribution methods

`ihlab bench --leaderboard` wrote this page from the entries in `benchmarks/entries`, for version {version} of the
standard set. [What is measured](attribution.md), and [how to enter](../CONTRIBUTING.md#adding-to-it).

- **rank**: rank correlation with the exact effects, mean over members with its 95% interval (Student's t).
- **worst**: the lowest rank correlation of a setting, with the setting.
- **reverse**: rank correlation with the other truth, `reverse` of `exact`.
- **recall**: fraction of the n true nodes that are among the n largest estimates, mean and lowest.
- **signs**: fraction of the true nodes with a wrong sign.
- **largest**: estimated / exact effect of the node with the largest effect: median, and the range of 90% of settings.
- **CPR gap**: the CPR of exact patching minus that of the method (heads only): mean and largest.
- **regret**: the area below the best circuits of each size minus the CPR (at most 8 heads): mean and largest.
- **worst ablation**: faithfulness of the method's n best heads, where n are true, with the other heads patched in the
  combination that harms most (at most 8 heads): mean and lowest.
- **passes**: forward + backward, of all prompts, on heads.

The row `exact` is the oracle. `constant`, `random` (mean over 200 draws) and `previous-position` know nothing. Compare
rows with equal numbers of settings: those with fewer may leave out the models of three and four layers, which are
harder."""

WITH_WORST = {"cpr_gap": "worst_gap", "regret": "worst_regret", "worst_ablation": "lowest_ablation"}
"""Scores of heads that the page shows as mean and worst over settings, and the column of `summary` with the worst."""

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
    table, passes = scores_table(listed), {entry["method"]: entry["passes"] for entry in listed}
    parts = [HEAD.format(version=VERSION)]
    overall = summary(table)
    for nodes, group in overall.groupby("nodes", sort=False):
        parts += [f"## {TITLES[str(nodes)]}", markdown(*_cells(group, passes))]
    heads = table[table["nodes"] == "head"]
    order = overall[overall["nodes"] == "head"]["method"]
    for column in ("corruption", "metric", "member"):
        middle = heads.pivot_table("rank", "method", column, sort=False).reindex(order)
        rows = [
            [method, *(f"{value:z.2f}" for value in row)]
            for method, row in zip(middle.index, middle.to_numpy(), strict=True)
        ]
        parts += [f"## Heads, mean rank correlation by {column}", markdown(["method", *middle.columns], rows)]
    return "\n\n".join(parts) + "\n"


def _cells(group: pd.DataFrame, passes: dict[str, list[float] | None]) -> tuple[list[str], list[list[str]]]:
    columns = ["method", "rank", "worst", "in setting", "reverse", "recall", "signs", "largest"]
    columns += ["CPR gap", "regret", "worst ablation", "passes"]
    rows = []
    for row in group.to_dict("records"):
        cost = passes[row["method"]]
        knows_sizes = np.isfinite(row["largest"])
        rows.append(
            [
                f"{row['method']} ({row['settings']} settings)",
                f"{row['rank']:z.2f} [{row['low']:z.2f}, {row['high']:z.2f}]",
                f"{row['worst_rank']:z.2f}",
                row["worst_setting"],
                f"{row['reverse_rank']:z.2f}",
                f"{row['recall']:.2f}, {row['worst_recall']:.2f}",
                f"{row['sign_errors']:.2f}",
                f"{row['largest']:z.2f} [{row['largest_low']:z.2f}, {row['largest_high']:z.2f}]" if knows_sizes else "",
                *(
                    f"{row[mean]:z.2f}, {row[worst]:z.2f}" if np.isfinite(row[mean]) else ""
                    for mean, worst in WITH_WORST.items()
                ),
                "" if cost is None else " + ".join(f"{each:.3g}" for each in cost),
            ]
        )
    return columns, rows
