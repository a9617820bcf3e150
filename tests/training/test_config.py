"""What a run config accepts, and the name it gives its run."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ihlab import ModelConfig, RunConfig
from ihlab.training.config import even_choice, from_dict, to_dict
from tasks import ConfigError, InductionTask, MQARTask, MultiHopTask, NGramTask, rule_of


def test_stored_config_reads_back_equal(small):
    assert from_dict(json.loads(json.dumps(to_dict(small)))) == small


def test_hash_depends_on_every_field_but_the_name(small):
    assert small.replace(name="other").digest == small.digest
    changes = [
        {"seed": 1},
        {"lr": 2e-2},
        {"steps": 25},
        {"compile": True},
        {"stop_at_accuracy": 0.9},
        {"stop_at_accuracy": 1},
        {"schedule": "trapezoid"},
        {"model": small.model.replace(n_layers=2)},
        {"task": InductionTask(vocab_size=40, length=12, score="first")},
    ]
    digests = {small.digest, *(small.replace(**change).digest for change in changes)}
    assert len(digests) == len(changes) + 1


@given(steps=st.integers(1, 5000), every=st.integers(1, 200), growth=st.floats(0, 0.5), kept=st.integers(2, 40))
def test_evaluations_are_dense_early_and_sparse_late(steps, every, growth, kept):
    task = InductionTask(vocab_size=40, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12)
    run = RunConfig(task=task, model=model, steps=steps, eval_every=every, eval_growth=growth, checkpoints=kept)
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
        ({"stop_at_accuracy": 0.0}, ["RunConfig.stop_at_accuracy is 0.0", "above 0 and at most 1"]),
        ({"stop_at_accuracy": 90}, ["RunConfig.stop_at_accuracy is 90.0", "above 0 and at most 1"]),
        ({"stop_at_accuracy": float("nan")}, ["RunConfig.stop_at_accuracy is nan", "finite"]),
        ({"stop_at_accuracy": "0.9"}, ["RunConfig.stop_at_accuracy", "'0.9'", "a number"]),
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
    assert small.replace(lr=1).digest == small.replace(lr=1.0).digest
    assert small.replace(stop_at_accuracy=1).digest == small.replace(stop_at_accuracy=1.0).digest
    assert isinstance(small.replace(clip=2).clip, float)


@pytest.mark.parametrize("missing", ["task", "model", "betas"])
def test_a_stored_config_without_a_part_is_refused(small, missing):
    with pytest.raises(ConfigError, match=f"no '{missing}'"):
        from_dict({name: value for name, value in to_dict(small).items() if name != missing})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"task": 3}, "The stored config's task is 3, but must be fields."),
        ({"task": {"length": 9}}, "The task's kind is None, but must be a name."),
        ({"model": {"n_layers": 1}}, "model.d_model is missing."),
        ({"betas": [0.9]}, "betas is [0.9], but must be a list of 2."),
        ({"fork": {"parent": "0" * 10, "clamps": [3]}}, "fork.parent_name is missing."),
    ],
)
def test_a_stored_config_that_is_none_is_refused_with_a_sentence(small, change, sentence):
    with pytest.raises(ConfigError) as caught:
        from_dict({**to_dict(small), **change})
    assert str(caught.value) == sentence


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60, unique=True).map(sorted), st.integers(2, 25))
def test_even_choice_of_checkpoints(steps, most):
    chosen = even_choice(steps, most)
    assert len(chosen) == min(most, len(steps))
    assert chosen[0] == steps[0]
    assert chosen[-1] == steps[-1]
    gaps = np.diff([steps.index(step) for step in chosen])
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


# The version of a task's drawing rule


def run_of(task) -> RunConfig:
    model = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=64, n_ctx=32, attention="kv_shift")
    return RunConfig(task=task, model=model, steps=100, lr=3e-3, seed=4)


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        (MultiHopTask(vocab_size=10, length=16, max_hops=3), "33c85e2e8c"),
        (NGramTask(vocab_size=40, length=12), "3ecd659f10"),
        (MQARTask(vocab_size=64, length=32, pairs=4), "272497ac81"),
    ],
)
def test_runs_of_tasks_whose_rule_never_changed_keep_their_hash(task, digest):
    """The digests that these configs had before tasks had rules, at commit 275cf7b."""
    assert rule_of(task) == 1
    assert "rule" not in to_dict(run_of(task))["task"]
    assert run_of(task).digest == digest


@pytest.mark.parametrize("rule", [None, 1, 3])
def test_a_stored_run_of_another_rule_is_refused_with_a_sentence_that_names_both(rule):
    """A run from before there were rules says nothing of one."""
    stored = to_dict(run_of(InductionTask(vocab_size=64, length=32)))
    del stored["task"]["rule"]
    stored["task"] |= {"rule": rule} if rule else {}
    kept = json.dumps(stored)
    with pytest.raises(ConfigError) as caught:
        from_dict(stored)
    for words in (f"by rule {rule or 1} of the task 'induction'", "by rule 2 now", "train it again"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert json.dumps(stored) == kept  # what was given is left as it is


def test_a_renamed_field_is_still_taken_shown_and_stored_by_its_first_name(small):
    """Run folders, sweep files and notebooks from before have it; their digests stay."""
    run = small.replace(stop_at_accuracy=0.9, stop_at_metric="accuracy")
    assert run == small.replace(until=0.9, until_metric="accuracy")
    assert (run.until, run.until_metric) == (0.9, "accuracy")
    stored = to_dict(run)
    assert (stored["until"], stored["until_metric"]) == (0.9, "accuracy")
    assert not [name for name in stored if name.startswith("stop_at")]
    new_names = {**stored, "stop_at_accuracy": stored.pop("until"), "stop_at_metric": stored.pop("until_metric")}
    assert from_dict({k: v for k, v in new_names.items() if not k.startswith("until")}) == run


def test_hash_leaves_defaults_out_so_that_a_new_field_renames_no_run(small):
    spelled_out = small.replace(
        model=small.model.replace(rotary_base=100_000, mask="causal"), schedule="constant", until=None
    )
    assert spelled_out.digest == small.digest
    stored = to_dict(small)
    del stored["model"]["mask"], stored["schedule"], stored["until"]  # as written before there were such fields
    assert from_dict(stored).digest == small.digest


def test_runs_of_a_task_whose_rule_changed_have_another_hash():
    """6b2fe1566e was that of induction's first rule, at commit 275cf7b."""
    run = run_of(InductionTask(vocab_size=64, length=32))
    assert rule_of(run.task) == 2
    assert run.digest not in ("6b2fe1566e", run_of(NGramTask(vocab_size=64, length=32)).digest)
    stored = json.loads(json.dumps(to_dict(run)))
    assert stored["task"]["rule"] == 2
    assert from_dict(stored) == run
    assert from_dict(stored).digest == run.digest
