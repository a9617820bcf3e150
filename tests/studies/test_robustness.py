"""Robustness: two stages of runs, the rate that the first chooses for the second, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES
from ihlab.claims.induction import KV1, V2, induction_run
from ihlab.plots.steps import ABOVE
from ihlab.studies.robustness import (
    AS_FIGURE1A,
    COMMON,
    NO_POSITIONS,
    OWN,
    RATES,
    SETTINGS,
    TUNING,
    TUNING_SEEDS,
    Robustness,
    seeds,
    settings,
)
from ihlab.training.run import Run

pytestmark = pytest.mark.slow

NAMES = list(SETTINGS)


# The first stage


@pytest.mark.parametrize("scale", SCALES)
def test_every_rate_is_tried_in_every_setting_on_seeds_of_its_own(scale):
    planned = Robustness().runs(scale)
    tried = {(p.curve, p.config.lr, p.config.seed) for p in planned}
    cells = 2 * len(settings(scale))
    assert len(planned) == len(tried)
    assert len(planned) == cells * len(RATES[scale]) * len(TUNING_SEEDS[scale])
    assert all(p.stacked and p.config.stop_at_accuracy == 0.9 and p.config.seed >= 100 for p in planned)
    assert {p.config.steps for p in planned} == {induction_run(scale).steps}


def test_the_laptops_settings():
    planned = Robustness().runs("laptop")
    assert len(planned) == 120
    models = {p.curve: p.config.model for p in planned}
    assert len(models) == 12
    assert {(m.attention, m.n_layers) for m in models.values()} == {("kv_shift", 1), ("vanilla", 2)}
    settings_of = [(m.positional, m.rotary_base, m.n_heads) for m in models.values() if m.attention == "vanilla"]
    assert settings_of == [
        ("rope", 1e5, 4), ("rope", 1e2, 4), ("alibi", 1e5, 4), ("none", 1e5, 4), ("rope", 1e5, 2), ("rope", 1e5, 1),
    ]  # fmt: skip


# The second stage


def written(planned, root, learns):
    """A finished-looking run of each plan, whose accuracy reaches 90% at the step `learns` gives, or never (inf)."""
    trained = []
    for plan in planned:
        run = Run.create(plan.config, root)
        at = learns(plan)
        ends = [(at, 0.95)] if np.isfinite(at) else [(plan.config.steps, 0.3)]
        run.write_metrics([{"step": step, "accuracy_first": accuracy} for step, accuracy in [(0, 0.0), *ends]])
        trained.append((plan.curve, run))
    return trained


def learns(plan):
    """KV shifting soonest at the high one of the two rates, vanilla at the common one; without positions it never."""
    if plan.config.model.attention == "kv_shift":
        return 10 if plan.config.lr > induction_run("smoke").lr else 20
    if plan.config.model.positional == "none":
        return np.inf
    return np.inf if plan.config.lr > induction_run("smoke").lr else 20


def test_the_second_stage_is_at_the_chosen_and_at_the_common_rate(tmp_path):
    experiment, (common, high) = Robustness(), RATES["smoke"]
    trained = written(experiment.runs("smoke"), tmp_path, learns)
    followed = experiment.follow(trained, "smoke")
    chosen: dict[str, list[float]] = {}
    for plan in followed:
        assert plan.config.steps == induction_run("smoke").steps
        assert plan.config.seed in (0, 1)
        chosen.setdefault(plan.curve, []).append(plan.config.lr)
    assert chosen == {
        f"{KV1}, {AS_FIGURE1A}": [high, high, common, common],
        f"{V2}, {AS_FIGURE1A}": [common, common],
        f"{KV1}, {NO_POSITIONS}": [high, high, common, common],
        f"{V2}, {NO_POSITIONS}": [common, common],
    }
    table = experiment.gather(trained + written(followed, tmp_path, learns), "smoke")
    counts = table.groupby(["setting", "curve"])["kind"].value_counts().to_dict()
    for setting in (AS_FIGURE1A, NO_POSITIONS):
        assert [counts[setting, KV1, kind] for kind in (TUNING, OWN, COMMON)] == [2, 2, 2]
        assert [counts.get((setting, V2, kind), 0) for kind in (TUNING, OWN, COMMON)] == [2, 2, 0]
    own = table[table["kind"] == OWN].groupby(["setting", "curve"])["lr"].unique()
    assert own[AS_FIGURE1A, KV1].tolist() == [high]
    assert own[NO_POSITIONS, V2].tolist() == [common]


def test_more_seeds_where_a_share_is_measured():
    """Six against six is the fewest of which a rank test can decide one of eight; half of twelve can be excluded."""
    assert [len(seeds("laptop", setting)) for setting in NAMES] == [6, 6, 6, 12, 6, 6]


# Verdicts


def table(times, own=1.6e-2, vanilla_never=0, kv_never=0):
    """A laptop table: `times` maps each setting to the steps of KV shifting and vanilla; of those without positions,
    some seeds never learn.
    """
    rng, rows = np.random.default_rng(0), []
    for setting, pair in times.items():
        for curve, middle, never in zip((KV1, V2), pair, (kv_never, vanilla_never), strict=True):
            for lr in RATES["laptop"]:
                rows += [(TUNING, setting, curve, lr, seed, middle if lr == own else 790.0, 800) for seed in (100, 101)]
            for kind, lr, factor in ((OWN, own, 1.0), (COMMON, 8e-3, 1.5)):
                for seed in seeds("laptop", setting):
                    lost = setting == NO_POSITIONS and seed < never
                    steps = np.inf if lost else round(middle * factor * rng.uniform(0.95, 1.05))
                    rows.append((kind, setting, curve, lr, seed, steps, 1000))
    made = pd.DataFrame(rows, columns=["kind", "setting", "curve", "lr", "seed", "steps_to_90", "horizon"])
    return made.assign(accuracy_first=np.where(np.isinf(made["steps_to_90"]), 0.3, 0.92))


def verdicts(data):
    return [claim.verdict for claim in judged(Robustness().claims(data, "laptop"))]


def test_verdicts_can_come_out_either_way():
    faster, slower = dict.fromkeys(NAMES, (100, 400)), dict.fromkeys(NAMES, (390, 400))
    assert verdicts(table(faster, vanilla_never=12)) == ["holds"] * 8
    assert verdicts(table(slower, kv_never=12)) == ["fails"] * 8
    assert verdicts(table({**faster, "ALiBi": (400, 400)})) == ["holds"] * 2 + ["fails"] + ["holds"] * 4 + ["fails"]
    between = table(faster, vanilla_never=6, kv_never=6)
    assert verdicts(between)[-2:] == ["undecided"] * 2


def test_only_runs_at_the_own_rate_count():
    data = table(dict.fromkeys(NAMES, (100, 400)))
    others = data["kind"] != OWN
    spoilt = data.assign(steps_to_90=data["steps_to_90"].where(~(others & (data["kind"] == COMMON)), 7.0))
    claims, again = (Robustness().claims(d, "laptop") for d in (data, spoilt))
    assert [c.estimate for c in claims] == [c.estimate for c in again]


def test_claims_say_their_rates_and_seeds():
    claims = Robustness().claims(table(dict.fromkeys(NAMES, (100, 400)), own=6.4e-2), "laptop")
    assert all("0.064 (highest of the grid)" in claim.measure for claim in claims)
    assert [claim.seeds for claim in claims] == [6, 6, 6, 12, 6, 6, 12, 12]
    assert {claim.declared for claim in claims} == {"2026-11-22"}
    assert "rotary base 100,000, 4 heads" in claims[0].sentence


def test_the_summary_says_ratios_and_bounds():
    said = Robustness().summary(table(dict.fromkeys(NAMES, (100, 400)), vanilla_never=12), "laptop")
    assert "at most 0.13 (no positions)" in said
    assert "12 of 12 seeds of KV shifting and 0 of 12 of vanilla learn induction within 1000 steps" in said


# The picture


def test_runs_that_never_learn_stand_on_top():
    data = table(dict.fromkeys(NAMES, (100, 400)), vanilla_never=5)
    axes = Robustness().draw(data, "laptop").axes[0]
    heights = np.concatenate(
        [np.asarray(dots.get_offsets())[:, 1] for dots in axes.collections if len(dots.get_offsets())]
    )
    assert np.isclose(heights, ABOVE * 800).sum() == 2 * 5  # at its own and at the common rate
    assert len(heights) >= (data["kind"] != TUNING).sum()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[-1] == "never"
    assert len(axes.get_xticklabels()) == 6


def test_where_nobody_learns_there_is_a_picture_and_nothing_is_decided_but_the_shares():
    data = table(dict.fromkeys(NAMES, (400, 400)))
    data["steps_to_90"] = np.inf
    assert verdicts(data) == ["undecided"] * 6 + ["fails", "holds"]
    assert "unknown (ALiBi)" in Robustness().summary(data, "laptop")
    Robustness().draw(data, "laptop").canvas.draw()


# Made at smoke scale


def test_both_stages_at_smoke_scale(smoke):
    _, folder = smoke("robustness")
    table = folder.data()
    assert set(table["kind"]) <= {TUNING, OWN, COMMON}
    assert (table["kind"] == OWN).sum() == 8
    assert [claim["verdict"] for claim in folder.claims()] == ["undecided"] * 4
    assert "0 of 2 seeds" in Robustness().summary(table, "smoke")
