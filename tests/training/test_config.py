"""What a run config accepts, and the name it gives its run."""

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ihlab import ModelConfig, RunConfig
from ihlab.training.config import from_dict, to_dict
from tasks import ConfigError, InductionTask, Task


def test_stored_config_reads_back_equal(small):
    assert from_dict(json.loads(json.dumps(to_dict(small)))) == small


def test_hash_depends_on_every_field_but_the_name(small):
    assert small.replace(name="other").digest == small.digest
    changes = [
        {"seed": 1},
        {"lr": 2e-2},
        {"steps": 25},
        {"schedule": "trapezoid"},
        {"model": small.model.replace(n_layers=2)},
        {"task": InductionTask(vocab_size=40, length=12, score="first")},
    ]
    digests = {small.digest, *(small.replace(**change).digest for change in changes)}
    assert len(digests) == len(changes) + 1


def test_a_task_made_of_tasks_is_told_apart_by_their_kinds(small):
    """Two tasks of equal fields are two runs, also as one of several in a task of a user's own."""

    @dataclass(frozen=True)
    class Both(InductionTask):
        kind: ClassVar[str] = "both"
        parts: tuple[Task, ...] = ()
        last: Task | None = None

    @dataclass(frozen=True)
    class Twin(InductionTask):
        kind: ClassVar[str] = "twin"

    one, other = (task(vocab_size=40, length=12) for task in (InductionTask, Twin))
    given = [{"parts": (one,)}, {"parts": (other,)}, {"last": other}]
    digests = {small.replace(task=Both(vocab_size=40, length=12, **each)).digest for each in given}
    assert len(digests) == 3


@given(
    steps=st.integers(1, 5000),
    every=st.integers(1, 200),
    growth=st.floats(0, 0.5),
    kept=st.integers(2, 40),
)
def test_evaluations_are_dense_early_and_sparse_late(steps, every, growth, kept):
    task = InductionTask(vocab_size=40, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12)
    run = RunConfig(
        task=task, model=model, steps=steps, eval_every=every, eval_growth=growth, checkpoints=kept
    )
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
    between = np.diff([at.index(step) for step in kept_steps])
    assert between.max() - between.min() <= 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": -5}, "RunConfig.steps is -5, but must be at least 1."),
        ({"lr": 0.0}, "RunConfig.lr is 0.0, but must be positive."),
        ({"accumulate": 3}, "RunConfig.accumulate is 3, which does not divide batch_size=8."),
        ({"name": "../escape"}, "RunConfig.name is '../escape', .* usable as a folder name"),
        ({"task": InductionTask(vocab_size=80, length=12)}, "is 80, .* d_vocab is only 40"),
        ({"task": InductionTask(vocab_size=40, length=13)}, "length is 13, .* n_ctx is 12"),
    ],
)
def test_a_bad_field_gets_one_clear_sentence(small, change, sentence):
    with pytest.raises(ConfigError, match=f"^.*{sentence}.*$"):
        small.replace(**change)


@pytest.mark.parametrize("missing", ["task", "model", "betas"])
def test_a_stored_config_without_a_part_is_refused(small, missing):
    with pytest.raises(ConfigError, match=f"no '{missing}'"):
        from_dict({name: value for name, value in to_dict(small).items() if name != missing})


# The version of a task's drawing rule


def run_of(task) -> RunConfig:
    model = ModelConfig(
        n_layers=2, d_model=16, n_heads=2, d_vocab=64, n_ctx=32, attention="kv_shift"
    )
    return RunConfig(task=task, model=model, steps=100, lr=3e-3, seed=4)


@pytest.mark.parametrize("rule", [None, 1, 3])
def test_a_stored_run_of_another_rule_is_refused_with_a_sentence_that_names_both(rule):
    """A run from before there were rules says nothing of one."""
    stored = to_dict(run_of(InductionTask(vocab_size=64, length=32)))
    del stored["task"]["rule"]
    stored["task"] |= {"rule": rule} if rule else {}
    sentence = f"by rule {rule or 1} of the task 'induction', .* by rule 2 now .* train it again"
    with pytest.raises(ConfigError, match=sentence):
        from_dict(stored)
    assert stored["task"].get("rule") == rule  # what was given is left as it is


def test_a_renamed_field_is_still_taken_shown_and_stored_by_its_first_name(small):
    """Run folders, sweep files and notebooks from before have it; their digests stay."""
    run = small.replace(stop_at_accuracy=0.9, stop_at_metric="accuracy")
    assert run == small.replace(until=0.9, until_metric="accuracy")
    assert (run.until, run.until_metric) == (0.9, "accuracy")
    stored = to_dict(run)
    assert (stored.pop("until"), stored.pop("until_metric")) == (0.9, "accuracy")
    assert not [name for name in stored if name.startswith("stop_at")]
    assert from_dict({**stored, "stop_at_accuracy": 0.9, "stop_at_metric": "accuracy"}) == run
