"""What a run config accepts, and the name it gives its run."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ihlab import ModelConfig, RunConfig
from ihlab.training.config import even_choice, from_dict, to_dict
from tasks import ConfigError, InductionTask


def test_stored_config_reads_back_equal(small):
    assert from_dict(json.loads(json.dumps(to_dict(small)))) == small


def test_hash_depends_on_every_field_but_the_name(small):
    assert small.but(name="other").digest == small.digest
    changes = [
        {"seed": 1},
        {"lr": 2e-2},
        {"steps": 25},
        {"compile": True},
        {"model": small.model.but(n_layers=2)},
        {"task": InductionTask(vocab_size=40, length=12, score="first")},
    ]
    digests = {small.digest, *(small.but(**change).digest for change in changes)}
    assert len(digests) == len(changes) + 1


def test_hash_leaves_defaults_out_so_that_a_new_field_renames_no_run(small):
    spelled_out = small.but(model=small.model.but(rotary_base=100_000, mask="causal"), schedule="constant")
    assert spelled_out.digest == small.digest
    stored = to_dict(small)
    del stored["model"]["mask"], stored["schedule"]  # as written before there were such fields
    assert from_dict(stored).digest == small.digest


@given(steps=st.integers(1, 5000), every=st.integers(1, 200), growth=st.floats(0, 0.5), kept=st.integers(2, 40))
def test_evaluations_are_dense_early_and_sparse_late(steps, every, growth, kept):
    task = InductionTask(vocab_size=40, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12)
    run = RunConfig(
        task=task, model=model, steps=steps, eval_every=every, eval_growth=growth, checkpoints=kept
    )  # fmt: skip
    at = run.eval_steps()
    gaps = [b - a for a, b in pairwise(at)]
    assert at[0] == 0
    assert at[-1] == steps
    assert all(gap > 0 for gap in gaps)
    assert all(a <= b for a, b in pairwise(gaps[:-1]))  # the last gap ends where the run does
    kept_steps = run.checkpoint_steps()
    assert set(kept_steps) <= set(at)
    assert kept_steps[0] == 0
    assert kept_steps[-1] == steps
    assert len(kept_steps) == min(kept, len(at))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": -5}, ["RunConfig.steps", "-5", "at least 1"]),
        ({"warmup": -1}, ["RunConfig.warmup", "-1", "at least 0"]),
        ({"lr": 0.0}, ["RunConfig.lr", "0.0", "positive"]),
        ({"clip": -1.0}, ["RunConfig.clip", "-1.0", "positive"]),
        ({"accumulate": 3}, ["RunConfig.accumulate", "3", "batch_size=8"]),
        ({"schedule": "cosin"}, ["RunConfig.schedule", "'cosin'", "'cosine'"]),
        ({"precision": "fp16"}, ["RunConfig.precision", "'fp16'", "'bf16'"]),
        ({"betas": (0.9, 1.0)}, ["RunConfig.betas", "[0, 1)"]),
        ({"name": "../escape"}, ["RunConfig.name", "folder name"]),
        ({"step": 3}, ["step", "did you mean 'steps'?"]),
        ({"task": InductionTask(vocab_size=80, length=12)}, ["vocab_size is 80", "d_vocab is only 40"]),
        ({"task": InductionTask(vocab_size=40, length=3)}, ["length is 3", "at least 4"]),
        ({"task": InductionTask(vocab_size=40, length=13)}, ["length is 13", "n_ctx is 12"]),
    ],
)
def test_a_bad_field_gets_one_clear_sentence(small, change, words):
    fields = {name: getattr(small, name) for name in small.__dataclass_fields__}
    with pytest.raises(ConfigError) as caught:
        RunConfig(**{**fields, **change})
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_whole_numbers_and_floats_are_one_setting(small):
    assert small.but(lr=1).digest == small.but(lr=1.0).digest
    assert isinstance(small.but(clip=2).clip, float)


@pytest.mark.parametrize("missing", ["task", "model", "betas"])
def test_a_stored_config_without_a_part_is_refused(small, missing):
    stored = to_dict(small)
    del stored[missing]
    with pytest.raises(ConfigError, match=f"no '{missing}'"):
        from_dict(stored)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60, unique=True).map(sorted), st.integers(2, 25))
def test_even_choice_of_checkpoints(steps, most):
    chosen = even_choice(steps, most)
    assert len(chosen) == min(most, len(steps))
    assert chosen[0] == steps[0]
    assert chosen[-1] == steps[-1]
    gaps = np.diff([steps.index(step) for step in chosen])
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
