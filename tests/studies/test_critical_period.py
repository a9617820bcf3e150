"""The critical period: what is planned and released, the measure, and verdicts on made-up tables."""

import math

import numpy as np
import pytest
import torch

from ihlab import train
from ihlab.claims.experiment import Planned
from ihlab.studies.critical_period import (
    AFTER,
    ALPHA,
    AS_IT_IS,
    BETA,
    CRITICAL_PERIOD,
    HELD,
    MOMENTS,
    QK,
    RELEASES,
    REST,
    REWOUND,
    SCORED,
    UNSCORED,
    attention_at_release,
)  # fmt: skip
from ihlab.studies.varied import Changes
from ihlab.training import checkpoint
from tasks import ConfigError
from tests.studies import made_up

STUDY = CRITICAL_PERIOD
RESTORED = {MOMENTS: math.inf, QK: 100.0, ALPHA: math.inf, BETA: 100.0, REST: math.inf}


def table(scored, unscored, rewound, entropy=0.3, share=(0.05, 0.5)):
    """Steps after the last release, of both data and of what is rewound there; 100 after all others."""

    def of(cell):
        is_scored, late = cell["data"] == SCORED, cell.get("dose") == RELEASES["laptop"][-1]
        steps = {AS_IT_IS: scored if is_scored else unscored, **rewound}[cell.get("rewound", AS_IT_IS)]
        return {"steps_to_90": steps if late else 100.0, "entropy": entropy, "beta1_share": share[not is_scored]}

    return made_up.table(STUDY, of, noise=0.1).query("dose >= 0 and dose != 20").assign(horizon=600)


def verdicts(data):
    return [*made_up.verdicts(STUDY, data).values()]


def test_verdicts_can_come_out_either_way():
    assert verdicts(table(math.inf, 100.0, RESTORED)) == ["holds"] * 10
    reverse = {part: 100.0 if math.isinf(steps) else math.inf for part, steps in RESTORED.items()}
    data = table(300.0, 300.0, reverse, entropy=0.9, share=(0.5, 0.05))
    assert verdicts(data) == ["holds"] + ["fails"] * 9


def test_without_a_stuck_model_nothing_is_restored():
    data = table(100.0, 100.0, RESTORED)
    assert verdicts(data) == ["fails", "holds", *["holds"] * 3, *["not tested at this scale"] * 5]


def test_every_release_has_a_checkpoint_and_two_data():
    planned = STUDY.runs("laptop")
    assert len({plan.config.digest for plan in planned}) == len(planned) == 12
    for plan in planned:
        assert set(RELEASES["laptop"]) <= set(plan.config.checkpoint_steps())
        assert plan.config.clamped == (HELD,)
        assert plan.config.task.score_immediate == (plan.curve == SCORED)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The runs of one seed at smoke scale, and their plans."""
    root = tmp_path_factory.mktemp("critical")
    held = [plan for plan in STUDY.runs("smoke") if plan.config.seed == 0]
    trained = [(plan.curve, train(plan.config, root)) for plan in held]
    released = STUDY.follow(trained, "smoke")
    return trained, [*trained, *((plan.curve, train(plan.config, root)) for plan in released)]


def test_models_are_released_at_every_dose_and_rewound_at_the_last(made):
    (first, *_), runs = made
    held, start = first[1], dict(first[1].model(0).named_parameters())
    found = {}
    for curve, run in runs[2:]:
        assert run.config.clamps == ()
        assert run.config.steps == run.config.first_step + AFTER["smoke"]
        data, _, part = curve.split(" | ")
        found.setdefault(data, []).append((run.config.first_step, part))
        if data != SCORED or run.config.first_step == 0:
            continue
        before, now = dict(run.model(20).named_parameters()), dict(held.model(20).named_parameters())
        moved = {name for name in now if not torch.equal(now[name], before[name])}
        inside = {f"blocks.0.attn.{name}.weight" for name in REWOUND[part]}
        assert moved == (now.keys() - inside if part == REST else inside)
        assert all(torch.equal(before[name], start[name]) for name in moved if "key_shift" not in name)
        state = checkpoint.load(run.optimizer_path(20))
        assert all((x == 0).all() for name, x in state.items() if name.startswith("exp_avg")) == (part == MOMENTS)
    assert found == {
        SCORED: [(0, AS_IT_IS), *((20, part) for part in REWOUND)],
        UNSCORED: [(0, AS_IT_IS), (20, AS_IT_IS)],
    }


def test_released_models_have_the_seeds_of_the_runs_they_continue(made):
    released = [Planned(curve, run.config) for curve, run in made[1][2:]]
    assert Changes(rate=2.0).apply(STUDY, released, 2) == released
    with pytest.raises(ConfigError, match="seeds cannot be set: runs of critical_period continue others"):
        Changes(seeds=3).apply(STUDY, released, 2)


def test_rewound_alpha_is_as_drawn_and_others_start_at_zero(made):
    for curve, run in made[1][2:]:
        alpha = run.model(run.config.first_step).layers[0].attn.alpha
        if curve.split(" | ")[2] in (ALPHA, REST):
            torch.testing.assert_close(alpha.sum(dim=1), torch.ones(len(alpha)))
        else:
            assert (alpha[:, 1] == 0).all()


def test_steps_count_from_the_release_and_immediate_repeats_do_not(made):
    data = STUDY.gather(made[1], "smoke")
    assert len(data) == len(made[1]) - 2
    assert set(data["horizon"]) == {20}
    for (_, run), accuracy in zip(made[1][2:], data["accuracy"], strict=True):
        last = run.metrics.iloc[-1]
        assert accuracy == pytest.approx(np.mean([last[f"accuracy_gap_{gap}"] for gap in (2, 4, 8)]), abs=1e-4)
    curve, run = made[1][-1]
    faked = run.metrics.assign(**{f"accuracy_gap_{gap}": [0.0, 0.8, 1.0] for gap in (2, 4, 8)})
    fake = type("Fake", (), {"config": run.config, "metrics": faked, "model": run.model})()
    assert STUDY.gather([(curve, fake)], "smoke")["steps_to_90"].tolist() == [15.0]  # evaluated at 20, 30 and 40


def test_uniform_attention_has_entropy_one(made):
    run = made[0][0][1]

    def changed(scale):
        model = run.model()
        with torch.no_grad():
            model.layers[0].attn.q_proj.weight.mul_(scale)
        return type("Changed", (), {"config": run.config, "model": lambda self, step: model})()

    uniform, sharp = attention_at_release(changed(0.0)), attention_at_release(changed(1e4))
    assert uniform == pytest.approx({"entropy": 1.0, "w_qk": 0.0}, abs=1e-6)
    assert sharp["entropy"] < 0.1
    attention = run.model().layers[0].attn
    norms = [np.linalg.norm(q @ k.T) for q, k in zip(attention.W_Q.detach(), attention.W_K.detach(), strict=True)]
    assert attention_at_release(changed(1.0))["w_qk"] == pytest.approx(np.mean(norms), rel=1e-5)
