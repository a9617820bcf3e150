"""Initialisation: runs that differ in the width of the embeddings, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES
from ihlab.claims.induction import induction_run
from ihlab.plots.steps import ABOVE
from ihlab.studies.initialisation import CURVES, KV1, KV2, SEEDS, STDS, V2, Initialisation
from ihlab.training.ensemble import check_members

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scale", SCALES)
def test_runs_are_figure_1as_but_for_the_embeddings(scale):
    planned, figure1a = Initialisation().runs(scale), induction_run(scale)
    assert len({p.config.digest for p in planned}) == len(planned) == 3 * len(STDS[scale]) * SEEDS[scale]
    assert {p.config.lr for p in planned} == {figure1a.lr}
    assert {p.config.steps for p in planned} == {2 * figure1a.steps}
    assert {p.config.model.embed_std for p in planned} == set(STDS[scale])
    models = {p.config.model.replace(embed_std=None, attention="vanilla", n_layers=1) for p in planned}
    assert models == {figure1a.model}
    for curve in {p.curve for p in planned}:
        check_members([p.config for p in planned if p.curve == curve])


def table(small, unit, noise=0.05):
    """A laptop table: steps of each curve with embeddings of 0.02 and of 1, and between them on a log scale."""
    rng, rows = np.random.default_rng(0), []
    for curve in CURVES:
        for std in STDS["laptop"]:
            part = np.log(std) / np.log(0.02)
            middle = unit[curve] if std == 1 else small[curve] ** part * unit[curve] ** (1 - part)
            for seed in range(6):
                steps = middle * rng.uniform(1 - noise, 1 + noise)
                rows.append((curve, std, 8e-3, seed, round(steps) if steps <= 2000 else np.inf, 0.9, 2000))
    names = ["curve", "embed_std", "lr", "seed", "steps_to_90", "accuracy_first", "horizon"]
    return pd.DataFrame(rows, columns=names)


CONSTANT = 1600
"""Of 2000 steps, those before the learning rate falls."""


def verdicts(data):
    return [claim.verdict for claim in judged(Initialisation().claims(data, "laptop"))]


UNIT = {KV1: 130, KV2: 150, V2: 550}
FINDING = {KV1: 200, KV2: 250, V2: 1e9}


def test_verdicts_can_come_out_either_way():
    assert verdicts(table(FINDING, UNIT)) == ["holds"] * 5
    nobody_is_slowed_down_but_shifting = {KV1: 1800, KV2: 1800, V2: 600}
    assert verdicts(table(nobody_is_slowed_down_but_shifting, UNIT)) == ["fails"] * 3 + ["holds", "fails"]
    assert verdicts(table({**UNIT, V2: 1100}, {**UNIT, KV1: 500}, noise=0.2))[0] == "undecided"
    assert verdicts(table(FINDING, {**UNIT, KV1: 540}))[3] == "fails"


def test_what_is_learned_while_the_rate_falls_does_not_count_and_the_declared_row_is_kept():
    data = table({**FINDING, V2: 1800}, {**UNIT, V2: 700})
    [vanilla, *others] = judged(Initialisation().claims(data, "laptop"))
    assert vanilla.estimate.value == pytest.approx(CONSTANT / 700, rel=0.1)
    assert vanilla.first.estimate.value == pytest.approx(1800 / 700, rel=0.1)
    assert [claim.first is None for claim in others] == [True] * 3 + [False], "no other row has runs so late"


def test_a_curve_that_never_learns_from_either_start_decides_nothing_about_itself():
    data = table(FINDING, {**UNIT, V2: 1e9})
    assert verdicts(data) == ["undecided", *["holds"] * 4]


def test_only_the_ends_of_the_grid_are_judged():
    data = table(FINDING, UNIT)
    spoilt = data.assign(steps_to_90=data["steps_to_90"].where(data["embed_std"].isin([0.02, 1.0]), 7.0))
    claims, again = (Initialisation().claims(d, "laptop") for d in (data, spoilt))
    assert [c.estimate for c in claims] == [c.estimate for c in again]


def test_claims_say_their_date_and_seeds():
    claims = Initialisation().claims(table(FINDING, UNIT), "laptop")
    assert {(claim.declared, claim.seeds) for claim in claims} == {("2026-11-22", 6)}


def test_the_summary_says_medians_and_gains():
    said = Initialisation().summary(table(FINDING, UNIT, noise=0.0), "laptop")
    assert "130 (KV shifting, 1 layer), 150 (KV shifting, 2 layers), 550 (vanilla, 2 layers) where" in said
    assert "never (vanilla, 2 layers) where" in said
    assert "needs 0.24 of the steps of two vanilla layers from the former start and at most 0.125 from" in said


def test_the_picture_has_every_seed_and_never_on_top():
    axes = Initialisation().draw(table(FINDING, UNIT), "laptop").axes[0]
    heights = np.concatenate([np.asarray(dots.get_offsets())[:, 1] for dots in axes.collections])
    assert len(heights) == 3 * 4 * 6
    assert np.isclose(heights, ABOVE * CONSTANT).sum() == 3 * 6  # vanilla from all but N(0, 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.02", "0.125", "0.35", "1"]
    assert axes.get_yticklabels()[-1].get_text() == "never"


def test_all_of_it_at_smoke_scale(smoke):
    _, folder = smoke("initialisation")
    table = folder.data()
    assert table.groupby(["curve", "embed_std"])["seed"].apply(list).tolist() == [[0, 1]] * 6
    assert [claim["verdict"] for claim in folder.claims()] == ["undecided"] * 5
    assert "never (vanilla, 2 layers)" in Initialisation().summary(table, "smoke")
