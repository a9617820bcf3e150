"""Proofs: what is measured of a model that is right by construction, and of a random one."""

from types import SimpleNamespace

import pytest
import torch

from figures.proofs.study import (
    FALLING,
    NONE,
    RANDOM,
    WORST,
    config,
    measure,
)
from ihlab import Transformer
from ihlab.recipes.labels import KV
from ihlab.theory.constructions import kv_shift_induction_head
from ihlab.training.config import TaughtConfig

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
