"""The committed verdicts, derived again from the committed tables by somebody who knows pandas and SciPy and not ihlab.

Nothing here imports `ihlab`: a reader who doubts a verdict can start from these lines.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
FIGURES, NOTEBOOKS = ROOT / "figures", ROOT / "notebooks" / "data"


def stored(name):
    """The folder of a figure: in `figures`, or in the folder of its family."""
    [folder] = [path.parent for path in FIGURES.rglob("claims.json") if path.parent.name == name]
    return folder


def table(name):
    return pd.read_csv(stored(name) / "data.csv")


def curves(name):
    """The rows of curves.csv, each with the columns that only data.csv has of its run."""
    path = stored(name) / "curves.csv"
    runs = table(name)
    rows = pd.read_csv(path)
    return rows.merge(runs[["curve", "seed", "lr", *(column for column in runs if column not in rows)]])


def claims(name, start=""):
    """The claims whose ids are `start` or begin with it and a dot, of which there must be some."""
    rows = json.loads((stored(name) / "claims.json").read_text(encoding="utf-8"))
    found = [claim for claim in rows if not start or f"{claim['id']}.".startswith(f"{start}.")]
    assert found, f"no claim of {name} has the id {start!r}: nothing would be derived again"
    return found


def ends(data, curve, column="accuracy_first"):
    return data[data["curve"] == curve].groupby("seed")[column].last().to_numpy()


def waits(data, curve, accuracy=0.9):
    """First evaluated step at or above an accuracy, before the rate falls; inf for never."""
    mine = data[(data["curve"] == curve) & (data["step"] <= data["horizon"])]
    reached = mine[mine["accuracy_first"] >= accuracy].groupby("seed")["step"].min()
    return reached.reindex(mine["seed"].unique()).fillna(math.inf).to_numpy()


def median_ratio(a, b, horizon):
    """Of all pairs; a wait that never ended counts as the horizon, two such say nothing."""
    pairs = [(min(x, horizon) / min(y, horizon)) for x in a for y in b if math.isfinite(x) or math.isfinite(y)]
    return np.median(pairs)


def same(value, claim, abs_=1e-4):
    assert claim["value"] == pytest.approx(value, abs=abs_)


def median_difference(a, b):
    """Hodges and Lehmann's: the median over all pairs."""
    return np.median(np.subtract.outer(a, b))


def holm(p_values):
    order, adjusted, largest = np.argsort(p_values), np.empty(len(p_values)), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


FOLDERS = sorted(path.parent for path in FIGURES.rglob("claims.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_verdicts_follow_from_value_threshold_and_adjusted_p(folder):
    """Of the claims as they are, and of the family in which those that were changed are as first declared."""
    stored = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    declared = [claim.get("first", claim) for claim in stored]
    for family, shown in ((stored, stored), (declared, [claim["first"] for claim in stored if "first" in claim])):
        sampled = [claim for claim in family if claim["p"] is not None]
        adjusted = holm([claim["p"] for claim in sampled]) if sampled else []
        of = {id(claim): p for claim, p in zip(sampled, adjusted, strict=True)}
        for claim in shown:
            follows(claim, of.get(id(claim)))


def follows(claim, p):
    assert claim["p_holm"] == (None if p is None else pytest.approx(p, rel=0.02))
    if claim["verdict"] == "not tested at this scale":
        assert claim["why"]
        return
    right = (claim["value"] > claim["threshold"]) == (claim["right_side"] == "above")
    decided = claim["p_holm"] is None or claim["p_holm"] <= 0.05
    expected = ("holds" if right else "fails") if decided and claim["value"] != claim["threshold"] else "undecided"
    assert claim["verdict"] == expected, claim
    low, high = (
        x if x is not None else bound for x, bound in zip(claim["interval"], (-math.inf, math.inf), strict=True)
    )
    assert low <= claim["value"] <= high


@pytest.mark.parametrize(("figure", "where"), [("figure1a", "rope"), ("figure1a_learned", "learned")])
def test_figure1a(figure, where):
    data = curves(figure)
    kv, v1, v2, v4 = "KV shifting, 1 layer", "vanilla, 1 layer", "vanilla, 2 layers", "vanilla, 4 layers"
    for name, curve in (("kv1_perfect", kv), ("vanilla1_hard", v1), ("vanilla2_perfect", v2)):
        [claim] = claims(figure, f"{name}.{where}")
        same(ends(data, curve).mean(), claim)
    for name, curve in (("faster", kv), ("four_layers_no_faster", v4)):
        [claim] = claims(figure, f"{name}.{where}")
        same(median_ratio(waits(data, curve), waits(data, v2), 1600), claim)


def test_figure1b():
    kv, vanilla = "KV shifting, 1 layer, hidden size {}".format, "vanilla, 2 layers, hidden size {}".format

    def learned(curve):
        return (ends(data, curve) >= 0.9).mean()

    for figure, name, shape in (
        ("figure1b_learned", "learned.1_head", "8, learned positions"),
        ("figure1b_learned", "learned.2_heads", "8, 2 heads, learned positions"),
        ("figure1b", "rope.2_heads", "8, 2 heads"),
        ("figure1b", "rope.1_head", "8"),
    ):
        data = curves(figure)
        [share], [accuracy] = claims(figure, f"narrow.share.{name}"), claims(figure, f"narrow.accuracy.{name}")
        if share["value"] is not None:
            same(learned(kv(shape)) - learned(vanilla(shape)), share)
        same(median_difference(ends(data, kv(shape)), ends(data, vanilla(shape))), accuracy)
        if name.endswith("1_head"):
            [claim] = claims(figure, f"narrow_vanilla.{name}")
            same((ends(data, vanilla(shape)) < data["guess"].iloc[0] + 0.1).mean(), claim)
    [width] = claims("figure1b", "harder_when_narrower")
    same(learned(vanilla("32")) - learned(vanilla("8, 2 heads")), width)
    [cover] = claims("figure1b", "not_even_covered")
    same((ends(data, vanilla("8"), "in_row") < 0.5).mean(), cover)
    [faster] = claims("figure1b", "narrow_faster")
    same(median_ratio(waits(data, kv("8")), waits(data, vanilla("8")), data["horizon"].max()), faster)
    n = len(ends(data, vanilla("8")))
    hits = round(cover["value"] * n)
    exact = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert cover["interval"] == pytest.approx([exact.low, exact.high], abs=1e-6)


def test_figure8():
    data = table("figure8").melt(["attention", "n_layers", "seed"], var_name="hops", value_name="error")
    data = data[data["hops"].str.startswith("error_")]
    data["hops"] = data["hops"].str.removeprefix("error_").astype(int)
    for depth in (2, 3):
        many = data[data["hops"].between(4, 8) & (data["n_layers"] == depth)]
        means = many.groupby("attention")["error"].mean()
        [claim] = claims("figure8", f"multi_hop_bias.{depth}_layers")
        same(means["KV shifting"] - means["vanilla"], claim)
        by_seed = many.groupby(["attention", "seed"])["error"].mean()
        welch = stats.ttest_ind(by_seed["KV shifting"], by_seed["vanilla"], equal_var=False)
        assert claim["p"] == pytest.approx(welch.pvalue, rel=0.02)


def test_printed_tables():
    """Counts of the cells that the paper printed."""
    stored = json.loads((NOTEBOOKS / "printed_tables_claims.json").read_text(encoding="utf-8"))
    of = {claim["id"]: claim for claim in stored}
    cells, data, stated = (
        pd.read_csv(NOTEBOOKS / f"printed_{name}.csv") for name in ("table2", "tables6to13", "stated")
    )
    loss = data.pivot_table(index=["lr", "context"], columns="method", values="loss")
    five = loss[["vanilla", "K shifting", "V shifting", "QKV shifting", "KV shifting"]]
    same((five.idxmin(axis=1) == "KV shifting").mean(), of["best_in_almost_every"])
    for other, name in (
        ("Differential", "kv_better_than.differential"),
        ("Differential with QK norm", "kv_better_than.differential_qk_norm"),
        ("Selective", "kv_better_than.selective"),
        ("V shifting", "both_halves.key"),
        ("K shifting", "both_halves.value"),
    ):
        same((loss["KV shifting"] < loss[other])[loss[other].notna()].mean(), of[name])
    counts = stated[stated["kind"] == "count"].set_index("quantity")["number"]
    upper, lower = counts["previous key, own value"], counts["own key, previous value"]
    same(upper / (upper + lower), of["not_symmetrical"])
    own, previous = "own key, own value", "previous key, previous value"
    same((counts[own] + counts[previous]) / 128, of["diagonal_dominates"])
    early = counts[f"{own}, at 20B tokens"] + counts[f"{previous}, at 20B tokens"]
    same(early / 128, of["diagonal_already_dominates"])
    # The conditional odds ratio is the one under which the corner's expected count is the observed one.
    corner = stats.nchypergeom_fisher(128, counts[own] + upper, counts[own] + lower, of["become_coupled"]["value"])
    assert corner.mean() == pytest.approx(counts[own], rel=1e-6)
    sizes = stated[stated["quantity"] == "batch size in tokens"].groupby("model")["number"]
    same((sizes.max() / sizes.min() >= 1.25).sum(), of["batch_sizes_agree"])
    lead = cells["shifted"] - cells["vanilla"]
    for name, rows in (
        ("better_at_scales", lead[(cells["table"] == 2) & (cells["quantity"] == "average")]),
        ("better_under_metrics", lead[cells["table"] == 14]),
        ("mla_better_with_length", -lead[cells["table"] == 15]),
    ):
        same((rows > 0).mean(), of[name])


def test_printed_cells_agree_with_the_averages_beside_them():
    """A cell that was copied wrongly moves its average by more than a rounding."""
    cells = pd.read_csv(NOTEBOOKS / "printed_table2.csv").query("table == 2")
    for _, checkpoint in cells.groupby(["model", "tokens"]):
        average = checkpoint["quantity"] == "average"
        for column in ("vanilla", "shifted"):
            mean = checkpoint.loc[~average, column].mean()
            assert mean == pytest.approx(checkpoint.loc[average, column].item(), abs=0.0051)


COMPARISONS = ("figure7", "figure10", "figure11", "elsewhere", "table15", "zoo")


def test_text():
    data = table("text")
    runs = data[data["kind"] == "run"]
    ends = runs.groupby(["arm", "seed"]).last()

    def gap(one, other, column="bits_per_byte"):
        return (ends.loc[one, column] - ends.loc[other, column]).dropna().to_numpy()

    pairs = [("KV shifting, 1 layer", "vanilla, 1 layer"), ("KV shifting, 2 layers", "vanilla, 2 layers")]
    pairs += [(f"{one}, bytes", f"{other}, bytes") for one, other in pairs[1:]]
    for claim, pair in zip(claims("text", "better_on_text"), pairs, strict=True):
        same(gap(*pair).mean(), claim)
        assert claim["p"] == pytest.approx(max(stats.ttest_1samp(gap(*pair), 0).pvalue, 1e-12), rel=0.01)
        assert claim["seeds"] == len(gap(*pair))
        if "first" in claim:
            same(gap(*pair)[:5].mean(), claim["first"])
    kv, vanilla = pairs[1]
    gained, all_gained = -gap(kv, vanilla, "bits_eligible_4"), -gap(kv, vanilla)
    [half], [alike] = claims("text", "half_of_gain_copied"), claims("text", "more_than_alike")
    same((gained - all_gained / 2).mean(), half)
    share = ends.loc[vanilla, "bits_eligible_4"] / ends.loc[vanilla, "bits_per_byte"]
    same((gained - share.to_numpy() * all_gained).mean(), alike)
    for name in ("eligible", "misled", "rest"):
        assert f"bits_{name}_4" in ends
    assert ends[[f"bits_{name}_4" for name in ("eligible", "misled", "rest")]].sum(axis=1).to_numpy() == pytest.approx(
        ends["bits_per_byte"].to_numpy(), abs=1e-5
    )

    diagonal = ends.loc[kv, ["own_key_own_value", "previous_key_previous_value"]].sum(axis=1) / 6
    same(diagonal.mean(), claims("text", "diagonal_dominates")[0])
    tuned = data[data["kind"] == "tuning"]
    assert set(tuned["seed"]).isdisjoint(runs["seed"])


def cells_of(measure, data):
    """The two variants and the setting that a measure names."""
    (setting,) = [s for s in data["setting"].unique() if re.search(rf", {re.escape(s)}( \((\d|means)|$)", measure)]
    of_rate = " (learning rate 0"
    start = r"(^|, | / | minus |the )\b"
    named = [v for v in data["variant"].unique() if re.search(start + re.escape(v + of_rate), measure)]
    return sorted(named, key=lambda v: measure.index(v + of_rate)), setting


@pytest.mark.parametrize("name", COMPARISONS)
def test_variants_are_compared_as_claimed(name):
    data, stored = table(name), claims(name)
    runs = data[data["kind"] == "run"]
    checked = 0
    for claim in stored:
        measure = claim["measure"]
        if claim["value"] is None:
            continue
        (one, other), setting = cells_of(measure, data)
        of = {v: runs[(runs["variant"] == v) & (runs["setting"] == setting)] for v in (one, other)}
        assert all(len(rows) == claim["seeds"] and len(rows) in (8, 32) for rows in of.values())
        if measure.startswith("highest accuracy"):
            same(median_difference(*(of[v]["best"].to_numpy() for v in (one, other))), claim)
        else:
            times = [of[v]["steps_to_90"].to_numpy(dtype=float) for v in (one, other)]
            ratio = median_ratio(*times, of[one]["horizon"].max())
            same(ratio, claim)
        checked += 1
    assert checked
