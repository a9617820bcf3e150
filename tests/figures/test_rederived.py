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
FIGURES = ROOT / "figures"
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
    one = f"{V2}, hidden size 8"
    not_covered = ends(data, one, "in_row") < 0.5
    times = waits(data, f"{KV}, hidden size 8"), waits(data, one)
    numbers = {
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
    derived("text", {"half_of_gain_copied": (gained - whole / 2).mean()})


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
# measures say. A table below has the claim, the column, and the runs of both sides.


ALL = "seed >= 0"
RATIOS = [
    ("mqar", "sooner_than.vanilla2", ALL, "curve.str.startswith('KV')", "curve.str.startswith('vanilla, 2')"),
    ("many_heads", "own_starts_easier", "heads == 8", "starts.str.startswith('each')",
     "starts.str.startswith('all')"),
    ("by_position", "slower_than_usual", ALL, "variant == 'only by position'", "variant == 'free'"),
    ("period", "period_2_first_costs_steps", "curve.str.endswith('random repeats')", "curve.str.contains('then')",
     "not curve.str.contains('then')"),
    ("formation_laws", "head_given_helps.32", "length == 32", "variant.str.endswith('given')",
     "variant.str.endswith('2 layers')"),
    ("fusion", "fusion_easy.width_32_rope", "setting == 'width 32, RoPE'", "given.str.startswith('fused')",
     "given == 'nothing'"),
]  # fmt: skip
"""Ratios of steps to 90% accuracy."""
DIFFERENCES = [
    ("checker", "v_is_checker", "check", "asked == 'second'", "variant == 'V only'", "variant == 'vanilla'"),
    ("saved_layer", "worth_no_less_than_a_doubling", "log2_hops", "n_layers == 3", "attention == 'KV shifting'",
     "attention == 'vanilla'"),
    ("packing", "leak_helps.conv_kv.masked.800_steps", "loss_1 - loss_more",
     "variant == 'conv KV' and attention == 'masked' and steps == 800", "rule == 'zero'", "rule == 'leak'"),
    ("idle_layers", "shuts.induction_4_layers", "gate_0", "task == 'induction, 4 layers'", "sites == 'none'",
     "sites == 'KOM'"),
    ("depo", "canon_more.1", "mean", "layers == 1", "variant == 'Canon ABCD'", "variant == 'K only'"),
]  # fmt: skip
MEANS = [
    ("pairs", "learned.kv_window_3_and_queries_window_2", "best", "variant == 'KV, window 3, and queries, window 2'"),
    ("parallel", "one_if_narrow.vanilla", "found",
     "width == 8 and followers == 1 and variant.str.startswith('vanilla')"),
    ("attribution", "blind_at_the_end.vanilla_2_layers",
     "`seen_last attribution-patching`", "model == 'vanilla, 2 layers'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "id", "among", "one", "other"), RATIOS)
def test_frozen_ratios_of_steps(name, id, among, one, other):
    rows = table(name).query(among)
    times = [rows.query(side)["steps_to_90"] for side in (one, other)]
    derived(name, {id: median_ratio(*times, rows["horizon"].max())})


@pytest.mark.parametrize(("name", "id", "column", "among", "one", "other"), DIFFERENCES)
def test_frozen_differences(name, id, column, among, one, other):
    one, other = (table(name).query(among).query(side).eval(column) for side in (one, other))
    [claim] = claims(name, id)
    statistic = np.mean(one) - np.mean(other)
    if "means" in claim["measure"]:
        statistic = median_difference(one, other)
    same(statistic, claim)


@pytest.mark.parametrize(("name", "id", "column", "among"), MEANS)
def test_frozen_means(name, id, column, among):
    derived(name, {id: table(name).query(among).eval(column).mean()})


def test_frozen_flatness():
    by_seed = table("flatness").pivot_table("sharpness_0", "seed", "variant")
    [claim] = claims("flatness", "flatter.start")
    same((by_seed["KV shifting"] / by_seed["vanilla"]).mean(), claim)


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
