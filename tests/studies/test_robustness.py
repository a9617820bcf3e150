"""Robustness: what its cells change, two stages of runs, and verdicts on made-up tables."""

import re

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.comparison import RUN, TUNING, TUNING_SEEDS
from ihlab.claims.experiment import SCALES
from ihlab.claims.induction import GIVEN, KV1, V2, V4, figure1_run
from ihlab.plots.steps import ABOVE
from ihlab.studies.robustness import LEARNED, NO_DECAY, NO_POSITIONS, ROPE, SEEDS, SETTINGS, Robustness
from ihlab.training.clamp import Clamp
from ihlab.training.config import constant_steps

pytestmark = pytest.mark.slow


# The runs


@pytest.mark.parametrize("scale", SCALES)
def test_every_rate_of_a_cell_is_tried_on_seeds_that_no_claim_uses(scale):
    planned = Robustness().runs(scale)
    tried = {(p.curve, p.config.lr, p.config.seed) for p in planned}
    assert len(planned) == len(tried)
    assert {seed for _, _, seed in tried} <= set(TUNING_SEEDS)
    assert not set(TUNING_SEEDS) & set(SEEDS)
    assert all(p.config.stop_at_accuracy == 0.9 and p.config.schedule == "constant" for p in planned)
    assert {p.config.steps for p in planned} == {constant_steps(figure1_run(scale))}
    assert all(p.stacked != bool(p.config.clamped) for p in planned)


def test_the_laptops_cells():
    configs = {p.curve: p.config for p in Robustness().runs("laptop")}
    assert len(configs) == 11 * 2 + 4
    vanilla = {curve.partition(" | ")[2]: c for curve, c in configs.items() if curve.startswith(V2)}
    told = {
        name: (c.model.positional, c.model.n_heads, c.model.rotary_base, c.weight_decay) for name, c in vanilla.items()
    }
    assert told == {
        "RoPE": ("rope", 4, 1e5, 0.1),
        "RoPE, base 100": ("rope", 4, 1e2, 0.1),
        "ALiBi": ("alibi", 4, 1e5, 0.1),
        "learned positions": ("learned", 4, 1e5, 0.1),
        "no positions": ("none", 4, 1e5, 0.1),
        "RoPE, 2 heads": ("rope", 2, 1e5, 0.1),
        "RoPE, 1 head": ("rope", 1, 1e5, 0.1),
        "learned positions, 2 heads": ("learned", 2, 1e5, 0.1),
        "learned positions, 1 head": ("learned", 1, 1e5, 0.1),
        "RoPE, no weight decay": ("rope", 4, 1e5, 0.0),
        "learned positions, no weight decay": ("learned", 4, 1e5, 0.0),
    }  # fmt: skip
    for setting in (ROPE, LEARNED):
        given = configs[f"{GIVEN} | {setting}"]
        assert given.clamped == (Clamp(what="pattern", layer=0, head=0, value="previous"),)
        assert given.replace(clamped=(), name="x", lr=1.0) == vanilla[setting].replace(name="x", lr=1.0)
        assert configs[f"{V4} | {setting}"].model.n_layers == 4
    assert all(c.model.n_layers == 1 for curve, c in configs.items() if curve.startswith(KV1))


# Verdicts


def table(times, own=8e-3):
    """A laptop table: `times` gives the steps of each model (inf: never), or of some models in some settings."""
    rng, rows = np.random.default_rng(0), []
    for model, setting in Robustness().cells("laptop"):
        middle = times.get((model, setting), times[model])
        for lr in Robustness().grid((model, setting), "laptop"):
            rows += [(TUNING, model, setting, lr, seed, middle if lr == own else 1500.0) for seed in TUNING_SEEDS]
        rows += [(RUN, model, setting, own, seed, middle * rng.uniform(0.95, 1.05)) for seed in SEEDS]
    made = pd.DataFrame(rows, columns=["kind", "variant", "setting", "lr", "seed", "steps_to_90"])
    accuracy = np.where(np.isinf(made["steps_to_90"]), 0.3, 0.92)
    return made.assign(n_params=1000, accuracy=accuracy, best=accuracy, horizon=1600)


def verdicts(data):
    claims = judged(Robustness().claims(data, "laptop"))
    return ["".join({c.verdict[0] for c in claims[:11]}), *(c.verdict for c in claims[11:])]


def test_verdicts_can_come_out_either_way():
    faster = table({KV1: 100, GIVEN: 300, V2: 700, V4: 690})
    assert verdicts(faster) == ["h", *["holds", "holds", "holds"] * 2]
    slower = table({KV1: 600, GIVEN: 650, V2: 700, V4: 300})
    assert verdicts(slower) == ["f", *["fails", "fails", "fails"] * 2]
    mixed = judged(Robustness().claims(table({KV1: 100, GIVEN: 300, V2: 700, V4: 690, (V2, "ALiBi"): 110}), "laptop"))
    assert [c.verdict for c in mixed if "(ALiBi)" in c.sentence] == ["fails"]


def test_a_model_that_never_learns_is_slower_and_two_of_them_are_not_compared():
    never = np.inf
    one = judged(
        Robustness().claims(table({KV1: 100, GIVEN: 300, V2: 700, V4: 690, (V2, NO_POSITIONS): never}), "laptop")
    )
    [claim] = [c for c in one if f"({NO_POSITIONS})" in c.sentence]
    assert claim.verdict == "holds"
    assert "8 of 8 and 0 of 8 seeds get there" in claim.measure
    both = judged(Robustness().claims(table(dict.fromkeys((KV1, GIVEN, V2, V4), never)), "laptop"))
    assert {c.verdict for c in both} == {"not tested at this scale"}


def test_claims_say_when_a_rate_is_at_the_edge_of_its_grid():
    claims = Robustness().claims(table({KV1: 100, GIVEN: 300, V2: 700, V4: 690}), "laptop")
    assert f"{KV1} at 0.008 (lowest of the grid) / {V2} at 0.008, RoPE" in claims[0].measure


def test_the_summary_says_ratios_and_bounds():
    said = Robustness().summary(table({KV1: 100, GIVEN: 200, V2: 400, V4: 390, (V2, NO_POSITIONS): np.inf}), "laptop")
    assert re.search(r"vanilla layers, each at its own learning rate: 0\.2[45]\d? \(RoPE\)", said)
    assert re.search(r"at most 0\.06\d* \(no positions\)", said)
    assert re.search(r"previous-token head: 0\.(49|5|51) \(RoPE\), 0\.(49|5|51) \(learned positions\)", said)
    assert "8 of 8 seeds of KV shifting and 0 of 8 of vanilla" in said


# The picture


def test_runs_that_never_learn_stand_at_never():
    data = table({KV1: 100, GIVEN: 200, V2: 400, V4: 390, (V2, NO_POSITIONS): np.inf})
    axes = Robustness().draw(data, "laptop").axes[0]
    x = np.concatenate([np.asarray(dots.get_offsets())[:, 0] for dots in axes.collections if len(dots.get_offsets())])
    assert (x > 1600).sum() == len(SEEDS)
    assert np.isclose(np.median(x[x > 1600]), ABOVE * 1600, rtol=0.05)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(SETTINGS)
    assert set(NO_DECAY) <= set(SETTINGS)


# Made at smoke scale


def test_both_stages_at_smoke_scale(smoke):
    _, folder = smoke("robustness")
    made = folder.data()
    assert made.groupby("kind").size().to_dict() == {RUN: 12, TUNING: 12}
    assert len(folder.claims()) == 5
    assert "(no positions)" in Robustness().summary(made, "smoke")
