"""Figure 2 at smoke scale: its table, its shares against a slow count, its verdicts and its redrawing."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from ihlab.paper.studies.figure2 import AWAY, COORDINATES, FINE, FORMS, OTHERS, Figure2
from ihlab.study.claim import judged
from ihlab.theory import landscape

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("figure2")


@pytest.fixture(scope="module")
def data(made):
    return made[1].data()


def test_stored_points_are_the_loss(data):
    fields = data[data["kind"] == "field"]
    assert len(fields) == 3 * 3 * 9 * 9
    for point in fields.iloc[::37].itertuples():
        size = {"n_tokens": int(point.n_tokens)} if point.form == "exact" else {"other": int(point.other)}
        expected = landscape.loss(point.alpha1, 1 - point.alpha1, point.beta1, 1 - point.beta1, form=point.form, **size)
        assert point.loss == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("form", "size"), [("printed", {"other": 0}), ("exact", {"n_tokens": 5})])
def test_the_shares_that_move_away_are_counts_of_starts(data, form, size):
    """A short step of descent from each start; the distance to (0, 1), and alpha1 and beta1, before and after."""
    axis = np.linspace(0, 1, FINE["smoke"])
    alpha1, beta1 = (x.ravel() for x in np.meshgrid(axis, axis))
    walked = landscape.descend(alpha1, 1 - alpha1, beta1, 1 - beta1, form=form, **size, lr=1e-4, steps=1, square=True)
    before, after = (np.hypot(walked.alpha1[i], 1 - walked.beta1[i]) for i in (0, 1))
    counted = {
        AWAY: np.mean(after > before + 1e-9),
        COORDINATES[0]: np.mean(walked.alpha1[1] > walked.alpha1[0]),
        COORDINATES[1]: np.mean(walked.beta1[1] < walked.beta1[0]),
    }
    numbers = data[(data["kind"] == "number") & (data["form"] == form) & (data["other"] == 0)]
    stored = numbers.set_index("name")["value"]
    for name, share in counted.items():
        assert stored[name] == pytest.approx(share, abs=0.005), name


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


def made_up(leads: float, slopes: tuple[float, float, float], away: tuple[float, float], coordinate: float):
    """The numbers of all forms: those of the exact one, and others that must not matter.

    `away`: at the least O(T) and at the others; `coordinate`: how many more starts have beta1 move away.
    """
    exact = {}
    for i, other in enumerate(OTHERS):
        moves = away[min(i, 1)]
        exact |= {
            (other, "share that descends to (0, 1)"): leads + 0.001 * i,
            (other, "mean slope"): slopes[i],
            (other, AWAY): moves,
            (other, COORDINATES[0]): 0.0,
            (other, COORDINATES[1]): moves + coordinate,
        }
    rows = [
        {"kind": "number", "form": form, "other": other, "name": name, "value": value if form == "exact" else 0.5}
        for form in FORMS
        for (other, name), value in exact.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (made_up(0.995, (1.0, 0.9, 0.8), (0.2, 0.0), 0.005), "holds"),
        (made_up(0.98, (1.0, 0.9, 0.95), (0.0, 0.2), 0.005), "fails"),
        (made_up(0.99, (1.0, 1.0, 0.5), (0.01, 0.01), 0.0), "undecided"),
    ],
    ids=["right", "wrong", "neither"],
)
def test_the_exact_form_is_judged_and_can_come_out_each_way(data, verdict):
    claims = judged(Figure2().claims(data, "laptop"))
    assert [claim.verdict for claim in claims] == [verdict] * 6, [claim.to_dict() for claim in claims]
    assert {claim.p for claim in claims} == {None}  # counted, not sampled
    assert all("exact form (printed form 0.5, the paper's script 0.5)" in claim.measure for claim in claims[:1])


def test_the_verdicts_are_the_tables(made, data):
    """At smoke scale the fields are the real ones, on fewer points."""
    numbers = data[data["kind"] == "number"].set_index(["form", "other", "name"])["value"]
    claims = made[1].claims()
    leads, slows, by_distance, by_coordinate, *consistent = claims
    assert leads["value"] == min(numbers["exact", other, "share that descends to (0, 1)"] for other in OTHERS) == 1
    assert by_distance["value"] == numbers["exact", OTHERS[0], AWAY] == 0
    assert f"printed form {numbers['printed', OTHERS[0], AWAY]:.3g}" in by_distance["measure"]
    assert numbers["printed", OTHERS[0], AWAY] > 0.01
    assert by_coordinate["value"] == max(numbers["exact", OTHERS[0], name] for name in COORDINATES)
    assert [claim["value"] for claim in consistent] == [
        numbers["exact", OTHERS[-1], AWAY],
        max(numbers["exact", OTHERS[-1], name] for name in COORDINATES),
    ]
    ratios = [numbers["exact", b, "mean slope"] / numbers["exact", a, "mean slope"] for a, b in pairwise(OTHERS)]
    assert slows["value"] == pytest.approx(max(ratios))
    assert (leads["verdict"], by_distance["verdict"]) == ("holds", "fails")
