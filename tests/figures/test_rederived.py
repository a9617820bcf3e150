"""The committed verdicts, derived again from the committed tables by somebody who knows pandas and
SciPy and not ihlab.

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
SCALES = {"smoke", "gpu", "paper"}  # folders that a user's `ihlab reproduce` writes
PATHS = [path.parent for path in FIGURES.rglob("claims.json") if path.parent.name not in SCALES]
FOLDERS = {folder.name: folder for folder in sorted(PATHS)}


def table(name):
    """The runs of a figure for claims, by seed."""
    data = pd.read_csv(FOLDERS[name] / "data.csv")
    if "kind" in data:
        data = data[data["kind"] == "run"]
    return data.sort_values("seed", kind="stable")


def curves(name):
    """The rows of curves.csv, each with the columns that only data.csv has of its run."""
    rows, runs = pd.read_csv(FOLDERS[name] / "curves.csv"), table(name)
    more = [column for column in runs if column not in rows]
    return rows.merge(runs[["curve", "seed", "lr", *more]])


def claims(name, start=""):
    """The claims whose ids are `start` or begin with it and a dot, of which there must be some."""
    rows = json.loads((FOLDERS[name] / "claims.json").read_text(encoding="utf-8"))
    found = [claim for claim in rows if not start or f"{claim['id']}.".startswith(f"{start}.")]
    assert found, f"no claim of {name} has the id {start!r}: nothing would be derived again"
    return found


def same(value, claim, abs_=1e-4):
    assert claim["value"] == pytest.approx(value, abs=abs_), claim["id"]


def derived(name, numbers, abs_=1e-4):
    """Compare numbers, by the ids of their claims."""
    for id, number in numbers.items():
        [claim] = claims(name, id)
        same(number, claim, abs_)


def where(data, **columns):
    for column, value in columns.items():
        data = data[data[column] == value]
    return data


def ends(data, curve, column="accuracy_first"):
    return where(data, curve=curve).groupby("seed")[column].last().to_numpy()


def waits(data, curve, accuracy=0.9):
    """First evaluated step at or above an accuracy, before the rate falls; inf for never."""
    mine = where(data, curve=curve).query("step <= horizon")
    reached = mine[mine["accuracy_first"] >= accuracy].groupby("seed")["step"].min()
    return reached.reindex(mine["seed"].unique()).fillna(math.inf).to_numpy()


def median_ratio(a, b, horizon):
    """Of all pairs; a wait that never ended counts as the horizon, two such say nothing."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    ratios = np.divide.outer(np.minimum(a, horizon), np.minimum(b, horizon))
    return np.median(ratios[np.logical_or.outer(np.isfinite(a), np.isfinite(b))])


def median_difference(a, b):
    """Hodges and Lehmann's: the median over all pairs."""
    return np.median(np.subtract.outer(np.asarray(a), np.asarray(b)))


def holm(p_values):
    order, adjusted, largest = np.argsort(p_values), np.empty(len(p_values)), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


@pytest.mark.parametrize("name", FOLDERS)
def test_verdicts_follow_from_value_threshold_and_adjusted_p(name):
    """Of the claims as they are, and of the family in which those that were changed are as first
    declared.
    """
    stored = claims(name)
    follow(stored, stored)
    declared = [claim.get("first", claim) for claim in stored]
    follow(declared, [claim["first"] for claim in stored if "first" in claim])


def follow(family, shown):
    sampled = [claim for claim in family if claim["p"] is not None]
    adjusted = holm([claim["p"] for claim in sampled])
    of = {id(claim): p for claim, p in zip(sampled, adjusted, strict=True)}
    for claim in shown:
        p = of.get(id(claim))
        assert claim["p_holm"] == (None if p is None else pytest.approx(p, rel=0.02))
        if claim["verdict"] == "not tested at this scale":
            assert claim["why"]
            continue
        right = (claim["value"] > claim["threshold"]) == (claim["right_side"] == "above")
        verdict = "holds" if right else "fails"
        undecided = claim["p_holm"] is not None and claim["p_holm"] > 0.05
        if undecided or claim["value"] == claim["threshold"]:
            verdict = "undecided"
        assert claim["verdict"] == verdict, claim
        low, high = claim["interval"]
        assert low is None or low <= claim["value"]
        assert high is None or claim["value"] <= high


KV, V1, V2, V4 = (
    "KV shifting, 1 layer",
    "vanilla, 1 layer",
    "vanilla, 2 layers",
    "vanilla, 4 layers",
)


@pytest.mark.parametrize(
    ("figure", "positions"), [("figure1a", "rope"), ("figure1a_learned", "learned")]
)
def test_figure1a(figure, positions):
    data = curves(figure)
    two = waits(data, V2)
    numbers = {
        "kv1_perfect": ends(data, KV).mean(),
        "vanilla1_hard": ends(data, V1).mean(),
        "vanilla2_perfect": ends(data, V2).mean(),
        "faster": median_ratio(waits(data, KV), two, 1600),
        "four_layers_no_faster": median_ratio(waits(data, V4), two, 1600),
    }
    derived(figure, {f"{id}.{positions}": number for id, number in numbers.items()})


@pytest.mark.parametrize(
    ("figure", "id", "shape"),
    [
        ("figure1b_learned", "learned.1_head", "8, learned positions"),
        ("figure1b_learned", "learned.2_heads", "8, 2 heads, learned positions"),
        ("figure1b", "rope.2_heads", "8, 2 heads"),
        ("figure1b", "rope.1_head", "8"),
    ],
)
def test_figure1b(figure, id, shape):
    data = curves(figure)
    kv, vanilla = (ends(data, f"{model}, hidden size {shape}") for model in (KV, V2))
    derived(figure, {f"narrow.accuracy.{id}": median_difference(kv, vanilla)})
    [share] = claims(figure, f"narrow.share.{id}")
    if share["value"] is not None:
        same((kv >= 0.9).mean() - (vanilla >= 0.9).mean(), share)
    if id.endswith("1_head"):
        near_chance = vanilla < data["guess"].iloc[0] + 0.1
        derived(figure, {f"narrow_vanilla.{id}": near_chance.mean()})


def test_widths_of_figure1b():
    data = curves("figure1b")
    wide, narrow, one = (f"{V2}, hidden size {shape}" for shape in ("32", "8, 2 heads", "8"))
    times = waits(data, f"{KV}, hidden size 8"), waits(data, one)
    not_covered = ends(data, one, "in_row") < 0.5
    numbers = {
        "harder_when_narrower": (ends(data, wide) >= 0.9).mean()
        - (ends(data, narrow) >= 0.9).mean(),
        "not_even_covered": not_covered.mean(),
        "narrow_faster": median_ratio(*times, data["horizon"].max()),
    }
    derived("figure1b", numbers)
    exact = stats.binomtest(int(not_covered.sum()), len(not_covered)).proportion_ci(0.95, "exact")
    [cover] = claims("figure1b", "not_even_covered")
    assert cover["interval"] == pytest.approx([exact.low, exact.high], abs=1e-6)


@pytest.mark.parametrize("depth", [2, 3])
def test_figure8(depth):
    data = where(table("figure8"), n_layers=depth)
    many = data[[f"error_{hops}" for hops in range(4, 9)]].mean(axis=1)
    sides = [many[data["attention"] == attention] for attention in ("KV shifting", "vanilla")]
    [claim] = claims("figure8", f"multi_hop_bias.{depth}_layers")
    same(sides[0].mean() - sides[1].mean(), claim)
    welch = stats.ttest_ind(*sides, equal_var=False)
    assert claim["p"] == pytest.approx(welch.pvalue, rel=0.02)


def test_printed_tables():
    """Counts of the cells that the paper printed."""
    stored = json.loads((NOTEBOOKS / "printed_tables_claims.json").read_text(encoding="utf-8"))
    of = {claim["id"]: claim for claim in stored}
    cells, data, stated = (
        pd.read_csv(NOTEBOOKS / f"printed_{name}.csv")
        for name in ("table2", "tables6to13", "stated")
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
    counts = where(stated, kind="count").set_index("quantity")["number"]
    upper, lower = counts["previous key, own value"], counts["own key, previous value"]
    same(upper / (upper + lower), of["not_symmetrical"])
    own, previous = "own key, own value", "previous key, previous value"
    same((counts[own] + counts[previous]) / 128, of["diagonal_dominates"])
    early = counts[f"{own}, at 20B tokens"] + counts[f"{previous}, at 20B tokens"]
    same(early / 128, of["diagonal_already_dominates"])
    # The conditional odds ratio is the one under which the corner's expected count is the observed
    # one.
    odds = of["become_coupled"]["value"]
    corner = stats.nchypergeom_fisher(128, counts[own] + upper, counts[own] + lower, odds)
    assert corner.mean() == pytest.approx(counts[own], rel=1e-6)
    sizes = where(stated, quantity="batch size in tokens").groupby("model")["number"]
    same((sizes.max() / sizes.min() >= 1.25).sum(), of["batch_sizes_agree"])
    lead = cells["shifted"] - cells["vanilla"]
    averages = (cells["table"] == 2) & (cells["quantity"] == "average")
    same((lead[averages] > 0).mean(), of["better_at_scales"])
    same((lead[cells["table"] == 14] > 0).mean(), of["better_under_metrics"])
    same((lead[cells["table"] == 15] < 0).mean(), of["mla_better_with_length"])


def test_text():
    runs = table("text").groupby(["arm", "seed"]).last()

    def gap(one, other, column="bits_per_byte"):
        return (runs.loc[one, column] - runs.loc[other, column]).dropna().to_numpy()

    kv, vanilla = "KV shifting, 2 layers", "vanilla, 2 layers"
    pairs = [(KV, V1), (kv, vanilla), (f"{kv}, bytes", f"{vanilla}, bytes")]
    for claim, pair in zip(claims("text", "better_on_text"), pairs, strict=True):
        gaps = gap(*pair)
        same(gaps.mean(), claim)
        p_value = max(stats.ttest_1samp(gaps, 0).pvalue, 1e-12)
        assert claim["p"] == pytest.approx(p_value, rel=0.01)
        assert claim["seeds"] == len(gaps)
        if "first" in claim:
            same(gaps[:5].mean(), claim["first"])
    gained, whole = gap(vanilla, kv, "bits_eligible_4"), gap(vanilla, kv)
    share = runs.loc[vanilla, "bits_eligible_4"] / runs.loc[vanilla, "bits_per_byte"]
    diagonal = runs.loc[kv, ["own_key_own_value", "previous_key_previous_value"]].sum(axis=1) / 6
    numbers = {
        "half_of_gain_copied": (gained - whole / 2).mean(),
        "more_than_alike": (gained - share.to_numpy() * whole).mean(),
        "diagonal_dominates": diagonal.mean(),
    }
    derived("text", numbers)
    parts = runs[[f"bits_{name}_4" for name in ("eligible", "misled", "rest")]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(runs["bits_per_byte"].to_numpy(), abs=1e-5)


def sides_of(measure, data):
    """The rows of the two variants that a measure names, in its order, in its setting."""
    [setting] = [
        each
        for each in data["setting"].unique()
        if re.search(rf", {re.escape(each)}( \((\d|means)|$)", measure)
    ]
    places = {}
    for variant in data["variant"].unique():
        words = re.escape(f"{variant} (learning rate 0")
        if found := re.search(rf"(^|, | / | minus |the )\b{words}", measure):
            places[variant] = found.start()
    return [where(data, setting=setting, variant=each) for each in sorted(places, key=places.get)]


@pytest.mark.parametrize("name", ["figure7", "figure10", "figure11", "elsewhere", "table15", "zoo"])
def test_variants_are_compared_as_claimed(name):
    data = table(name)
    for claim in claims(name):
        if claim["value"] is None:
            continue
        one, other = sides_of(claim["measure"], data)
        assert len(one) == len(other) == claim["seeds"]
        if claim["measure"].startswith("highest accuracy"):
            same(median_difference(one["best"], other["best"]), claim)
        else:
            times = one["steps_to_90"], other["steps_to_90"]
            same(median_ratio(*times, one["horizon"].max()), claim)


# Frozen figures, whose code is gone. The numbers are computed from their tables by what the
# measures say.


@pytest.mark.parametrize(
    ("name", "column", "start", "one", "other"),
    [
        ("fusion", "given", "fusion_easy", "fused", "nothing"),
        ("fusion", "given", "decoupling_difficult", "keys apart", "fused"),
        ("fusion", "given", "concatenated_slower", "keys concatenated", "keys apart"),
        ("fusion", "given", "added_slower", "keys added", "keys concatenated"),
        ("mqar", "curve", "sooner_than.vanilla1", KV, V1),
        ("mqar", "curve", "sooner_than.vanilla2", KV, V2),
    ],
)
def test_frozen_ratios_of_steps(name, column, start, one, other):
    for claim in claims(name, start):
        rows = table(name)
        if name == "fusion":
            named = [each for each in rows["setting"].unique() if each in claim["measure"]]
            rows = where(rows, setting=max(named, key=len))
        times = [rows[rows[column].str.startswith(side)]["steps_to_90"] for side in (one, other)]
        same(median_ratio(*times, rows["horizon"].max()), claim)


def test_frozen_formation_laws():
    data = table("formation_laws")
    given = f"{V2}, previous-token head given"

    def slope(model):
        runs = where(data, variant=model)
        capped = runs.assign(steps=runs[["steps_to_90", "horizon"]].min(axis=1))
        steps = capped.pivot_table("steps", "length", "seed")
        reached = capped.pivot_table("steps_to_90", "length", "seed")
        learned = steps.loc[:, np.isfinite(reached.iloc[:2]).all()]
        x = np.log(learned.index)
        return np.mean([stats.linregress(x, np.log(learned[seed])).slope for seed in learned])

    vanilla, head_given, k_only = slope(V2), slope(given), slope("K only, 1 layer")
    numbers = {
        "quadratic": vanilla,
        "given_head": vanilla - head_given,
        "k_shift_given": head_given - k_only,
        "k_shift": vanilla - k_only,
    }
    derived("formation_laws", numbers)
    for claim in claims("formation_laws", "head_given_helps"):
        rows = where(data, length=int(claim["id"].rpartition(".")[2]))
        times = [where(rows, variant=model)["steps_to_90"] for model in (given, V2)]
        same(median_ratio(*times, rows["horizon"].max()), claim)


def test_frozen_many_heads():
    data = table("many_heads")
    apart, together = "each head has its own start", "all heads have one start"

    def ratio(*cells):
        times = [where(data, heads=heads, starts=starts)["steps_to_90"] for heads, starts in cells]
        return median_ratio(*times, data["horizon"].max())

    gain = ratio((8, together), (1, together))
    numbers = {
        "many_heads_easier": ratio((8, apart), (1, together)),
        "own_starts_easier": ratio((8, apart), (8, together)),
        "gain_needs_own_starts": max(gain, 1 / gain),
    }
    derived("many_heads", numbers)
    for id, starts in (("own_starts", apart), ("one_start", together)):
        ranks = []
        for heads in (2, 4, 8):
            rows = where(data, heads=heads, starts=starts)
            ranks.append(stats.spearmanr(rows["distance"], rows["steps_to_90"]).statistic)
        jackknifed = {f"nearer_is_easier.{id}": np.mean(ranks)}
        derived("many_heads", jackknifed, abs_=0.02)


def test_frozen_packing():
    data = table("packing")
    slugs = data["variant"].str.lower().str.replace(r"\W+", "_", regex=True)
    sides = re.compile(
        r"(?:size of )?(.+), (zero|leak|own), (masked|open), less (zero|leak), (masked|open), nats"
    )
    for claim in claims("packing"):
        if claim["id"] == "packed_is_alone":
            same(data["alone_error"].max(), claim, abs_=1e-6)
            continue
        rows = where(
            data[slugs == claim["id"].split(".")[1]],
            bos="BOS" if claim["id"].startswith("leak_with_bos") else "no BOS",
            steps=800 if claim["id"].endswith("800_steps") else 200,
        )
        column, *of_one, rule, attention = sides.match(claim["measure"]).groups()
        one = where(rows, rule=of_one[0], attention=of_one[1]).eval(column).to_numpy()
        other = where(rows, rule=rule, attention=attention).eval(column).to_numpy()
        difference = np.mean(one - other)
        if claim["measure"].startswith("size of"):
            difference = abs(difference)
        same(difference, claim, abs_=1e-7)
        assert claim["seeds"] == len(one) == len(other)


def test_frozen_depo():
    data = table("depo")
    for claim in claims("depo"):
        name, layers = claim["id"].split(".")[0], int(claim.get("setting", {}).get("layers", 2))
        of_model = dict(list(where(data, layers=layers).groupby("variant")))
        vanilla, keys, canon = (
            of_model[model]["mean"].to_numpy() for model in ("vanilla", "K only", "Canon ABCD")
        )
        numbers = {
            "half": np.mean(keys - (vanilla + canon) / 2),
            "canon_more": np.mean(canon - keys),
            "third_pair_earlier": of_model["K only"].eval("earlier - later").mean(),
        }
        if name == "law":
            predicted = int(re.search(r"most seeds follow (\d) of", claim["sentence"])[1])
            right = of_model[claim["setting"]["variant"]][["k1", "k2", "k3"]] >= 0.9
            followed = right.cumprod(axis=1).sum(axis=1)
            numbers["law"] = float((followed == predicted).mean() > 0.5)
        if claim["value"] is not None:
            same(numbers[name], claim)


def test_frozen_idle_layers():
    data, idle = table("idle_layers"), 0.1
    for claim in claims("idle_layers", "idle"):
        rows = where(data, **claim["setting"])
        learned = (rows["accuracy"] >= 0.9) | (rows["task"] == "text, 3 layers")
        predicted = "one layer's attention can be removed" in claim["sentence"]
        same(float((learned & ((rows["least"] < idle) == predicted)).mean() > 0.5), claim)
    for claim in claims("idle_layers", "shuts"):
        rows = where(data, **claim["setting"]).groupby("sites")["gate_0"].mean()
        same(rows["none"] - rows["KOM"], claim)
    toys = data[(data["task"] != "text, 3 layers") & (data["least"] < idle)]
    derived("idle_layers", {"tells": toys["match"].mean()})


def test_frozen_recurrences():
    data = table("recurrences")
    for claim in claims("recurrences"):
        rows = where(data, **claim["setting"])
        learned = rows[np.isfinite(rows["steps_to_90"])]
        same(learned[claim["id"].split(".")[0]].mean(), claim)
        assert claim["seeds"] == len(learned)


def test_frozen_shifts():
    """A variant learns if most seeds reach 90%, partly if it is .3 above vanilla, and each was
    predicted.
    """
    data = table("shifts")
    for claim in claims("shifts"):
        in_setting = where(data, setting=claim["setting"]["task"])
        rows = where(in_setting, variant=claim["setting"]["variant"])
        ahead = rows["best"].mean() - where(in_setting, variant="vanilla")["best"].mean()
        found = "partly learned" if ahead > 0.3 else "not learned"
        if np.isfinite(rows["steps_to_90"]).mean() > 0.5:
            found = "learned"
        same(float(f": {found} within" in claim["sentence"]), claim)
