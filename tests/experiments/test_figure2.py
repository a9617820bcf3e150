"""Figure 2 at smoke scale: its table, its shares against a slow count, its verdicts and its redrawing."""

import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ihlab.experiments.figure2 import FINE, OTHERS, Figure2
from ihlab.experiments.reproduce import reproduce
from ihlab.theory import landscape


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("figure2")
    [folder] = reproduce(
        ["figure2"], "smoke", runs=root / "runs", figures=root / "figures", console=Console(quiet=True)
    )
    return root, folder


@pytest.fixture(scope="module")
def data(made):
    return made[1].data()


def test_the_runs_are_those_of_figure_1a():
    from ihlab.experiments.figure1a import KV1, Figure1a

    shared = [plan.config for plan in Figure1a().runs("laptop") if plan.curve == KV1]
    assert [plan.config for plan in Figure2().runs("laptop")] == shared


def test_stored_points_are_the_loss(data):
    fields = data[data["kind"] == "field"]
    assert len(fields) == 3 * 3 * 9 * 9
    for point in fields.iloc[::37].itertuples():
        size = {"n_tokens": int(point.n_tokens)} if point.form == "exact" else {"other": int(point.other)}
        expected = landscape.loss(point.alpha1, 1 - point.alpha1, point.beta1, 1 - point.beta1, form=point.form, **size)
        assert point.loss == pytest.approx(expected, abs=1e-5)


def test_the_share_that_moves_away_is_a_count_of_starts_whose_distance_grows(data):
    """A short step of descent from each start, and the distance to (0, 1) before and after."""
    axis = np.linspace(0, 1, FINE["smoke"])
    away = 0
    for alpha1 in axis:
        for beta1 in axis:
            walked = landscape.descend(
                alpha1, 1 - alpha1, beta1, 1 - beta1, form="printed", other=0, lr=1e-4, steps=1, square=True
            )
            before, after = (math.hypot(walked.alpha1[i], 1 - walked.beta1[i]) for i in (0, 1))
            away += after > before + 1e-9
    numbers = data[(data["kind"] == "number") & (data["form"] == "printed") & (data["other"] == 0)]
    stored = numbers.set_index("name")["value"]["share that first moves away from (0, 1)"]
    assert stored == pytest.approx(away / len(axis) ** 2, abs=0.005)


def test_the_printed_form_has_a_second_valley_and_the_exact_one_has_not(data):
    """Descent by torch-free small steps from the printed field's far corner stays there."""
    for form, size, reaches in (("printed", {"other": 0}, False), ("exact", {"n_tokens": 5}, True)):
        at = np.array([0.9, 0.1])
        for _ in range(4000):
            by = landscape.gradient(at[0], 1 - at[0], at[1], 1 - at[1], form=form, **size)
            at = np.clip(at - 0.02 * np.array([by.alpha1 - by.alpha2, by.beta1 - by.beta2]), 0, 1)
        assert (np.hypot(at[0], 1 - at[1]) < 0.05) == reaches
    numbers = data[data["kind"] == "number"].pivot_table(index=["form", "other"], columns="name", values="value")
    shares = numbers["share that descends to (0, 1)"]
    assert shares.loc["exact"].tolist() == [1.0] * 3
    assert shares.loc["printed", 0] < 0.8


def test_every_head_and_every_simplified_start_has_a_path(data):
    paths = data[data["kind"] == "path"]
    assert paths[paths["series"] == "simplified model"]["path"].nunique() == 16
    assert set(paths["seed"].dropna()) == {0, 1}
    assert paths[paths["seed"].notna()]["path"].nunique() == 2 * 2
    assert paths["alpha1"].between(0, 1).all()
    assert paths["beta1"].between(0, 1).all()


def test_both_forms_are_judged_and_the_verdicts_are_the_tables(made, data):
    claims = made[1].claims()
    assert [claim["measure"].split()[0] for claim in claims[:8]] == ["printed"] * 4 + ["exact"] * 4
    by_hand = {claim["measure"]: claim["verdict"] for claim in claims if "first move away" in claim["measure"]}
    numbers = data[data["kind"] == "number"].set_index(["form", "other", "name"])["value"]
    small = {form: numbers[form, OTHERS[0], "share that first moves away from (0, 1)"] for form in ("printed", "exact")}
    assert by_hand["printed form: share of starts that first move away from (0, 1), O(T) = 0"] == "holds"
    assert by_hand["exact form: share of starts that first move away from (0, 1), T = 5"] == "fails"
    assert small["printed"] > 0.01
    assert small["exact"] == 0


def test_heads_that_became_induction_heads_are_compared_with_those_that_did_not():
    starts = [("a", "became an induction head", 0.0, 1.0), ("b", "became an induction head", 0.0, 0.9)]
    starts += [("c", "did not", 1.0, 1.0), ("d", "did not", 0.9, 1.0)]
    rows = [
        {"kind": "path", "path": path, "series": series, "alpha1": alpha1, "beta1": beta1, "seed": 0, "step": step}
        for path, series, alpha1, beta1 in starts
        for step in (0, 1)
    ]
    numbers = [
        {"kind": "number", "form": form, "other": other, "name": name, "value": 0.5}
        for form in ("printed", "exact")
        for other in OTHERS
        for name in ("mean slope", "share that first moves away from (0, 1)", "share that descends to (0, 1)")
    ]
    claim = Figure2().claims(pd.DataFrame(rows + numbers), "smoke")[-1]
    assert claim.estimate.value == pytest.approx(0.95 - 0.05)
    assert claim.verdict == "holds"


def test_redrawing_needs_no_torch_and_gives_the_same_files(made):
    root, folder = made
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    for name in ("figure2-smoke.svg", "figure2-smoke.png", "claims.json"):
        (folder.path / name).unlink()
    script = "import sys; from ihlab.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    arguments = ["reproduce", "figure2", "--scale", "smoke", "--from-data", "--figures", str(root / "figures")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
