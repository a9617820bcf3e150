"""Proofs: what is measured of a model that is right by construction and of a random one; verdicts
on made-up tables.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from figures.proofs.study import (
    CONSTANT,
    FALLING,
    NONE,
    PROOFS,
    RANDOM,
    ROPE,
    WORST,
    config,
    measure,
)
from ihlab import Transformer
from ihlab.recipes.labels import KV, VANILLA
from ihlab.theory.constructions import kv_shift_induction_head
from ihlab.training.config import TaughtConfig
from tests.figures.made_up import table, verdicts

CELL = {"variant": KV, "setting": NONE, "training": WORST}


@pytest.mark.parametrize("right", [True, False])
def test_a_right_model_is_proved_and_a_random_one_refuted(right):
    run = SimpleNamespace(config=config(CELL), done=None)
    built = kv_shift_induction_head(
        torch.eye(16), 32, sigma=0.05, slope=0.01, mask="strict"
    ).float()
    run.model = lambda: built if right else Transformer(run.config.model, seed=0)
    found = measure(run)
    assert (found["proved"], found["refuted"], found["perfect"]) == (right, not right, right)
    assert found["longest"] == (32 if right else 0)


def test_only_lessons_differ_between_trainings_of_one_rate():
    falling, random, worst = (
        config({**CELL, "training": training}) for training in (FALLING, RANDOM, WORST)
    )
    assert isinstance(worst, TaughtConfig)
    assert (random.lessons.rows, worst.lessons.rows) == ("random", "proof")
    assert random.replace(lessons=worst.lessons) == worst
    assert all(
        getattr(falling, name) == getattr(worst, name) for name in falling.__dataclass_fields__
    )


def made_up(lengths, refuted):
    def of(cell):
        longest = lengths[cell["training"]]
        vanilla = cell["variant"] == VANILLA
        found = {
            "proved": float(longest >= 16),
            "longest": longest,
            "refuted": float(vanilla and refuted),
        }
        return {
            **found,
            "perfect": float(longest >= 16),
            "accuracy": 1.0,
            "last_step": 600,
            "margin": 1.0,
        }

    data = table(PROOFS, of, seeds=12, noise=0)
    data["longest"] -= np.where(data["setting"] == ROPE, data["seed"] % 2, 0) * (
        data["longest"] < 32
    )
    return verdicts(PROOFS, data)


def test_verdicts_can_come_out_either_way():
    good = made_up({CONSTANT: 10, FALLING: 16, RANDOM: 20, WORST: 32}, refuted=True)
    bad = made_up({CONSTANT: 16, FALLING: 10, RANDOM: 32, WORST: 12}, refuted=False)
    assert {id for id, verdict in good.items() if verdict != "holds"} <= {"falling_proved"}
    assert {id for id, verdict in bad.items() if verdict == "holds"} == {"falling_rope"}
