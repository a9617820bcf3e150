"""Each member of an ensemble is its solo run: in numbers, in its folder, interrupted, and when
another diverges.
"""

import numpy as np
import pytest
import torch

from ihlab import Clamp, train
from ihlab.measure.gathered import training_batch
from ihlab.model.attention import Attention
from ihlab.model.registry import register_attention
from ihlab.training import checkpoint
from ihlab.training.ensemble import (
    best_stack,
    check_members,
    seeds,
    stack_batches,
    stacks,
)
from ihlab.training.fork import fork_config
from ihlab.training.interrupt import Interrupted
from ihlab.training.train import train_ensemble
from tasks import IGNORE, ConfigError, InductionTask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("attentions_as_before")]


@pytest.fixture
def members(small):
    """Three runs with different seeds, rates and starts."""
    return [small, small.replace(seed=1, lr=3e-3), small.replace(seed=2, init_shift=(0.25, 0.75))]


def losses(run):
    return torch.tensor(run.metrics[["train_loss", "eval_loss"]].to_numpy())


def assert_close(run, solo, tolerance=1e-4):
    torch.testing.assert_close(losses(run), losses(solo), rtol=0, atol=tolerance, equal_nan=True)
    assert list(run.metrics.columns) == list(solo.metrics.columns)
    assert run.metrics["step"].equals(solo.metrics["step"])


def files(run):
    return sorted(str(path.relative_to(run.folder)) for path in run.folder.rglob("*"))


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": None, "task": InductionTask(vocab_size=40, length=12, score="tokens")},
        {
            "accumulate": 2,
            "schedule": "cosine",
            "model": {"positional": "alibi", "mask": "strict", "norm": "layer", "bias": True},
        },
        {"precision": "bf16"},
    ],
    ids="-".join,
)
def test_members_follow_their_solo_runs_in_other_settings(members, tmp_path, changes):
    if isinstance(changes.get("model"), dict):
        changes = changes | {"model": members[0].model.replace(**changes["model"])}
    configs = [config.replace(**changes) for config in members]
    for run, config in zip(train_ensemble(configs, tmp_path / "a", stack=3), configs, strict=True):
        assert_close(
            run, train(config, tmp_path / "b"), tolerance=0.05 if "precision" in changes else 1e-4
        )


def test_a_members_folder_is_that_of_its_solo_run(members, tmp_path):
    runs = train_ensemble(members, tmp_path / "together", stack=3)
    for run, config in zip(runs, members, strict=True):
        solo = train(config, tmp_path / "alone")
        assert files(run) == files(solo)
        assert run.folder.name == solo.folder.name
        assert (run.done["ensemble"], run.done["n_params"]) == (3, solo.done["n_params"])
        for step in solo.checkpoints:
            for path in ("checkpoint_path", "optimizer_path"):
                ours, theirs = (checkpoint.load(getattr(r, path)(step)) for r in (run, solo))
                assert ours.keys() == theirs.keys()
                for name in ours.keys() - {"tally/seconds"}:
                    torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-4)


def test_an_interrupted_ensemble_goes_on_bit_for_bit(members, tmp_path, stop_at):
    with pytest.raises(
        Interrupted, match="Stopped at step 14 of 24, saved in the folders of its 3 members"
    ):
        train_ensemble(members, tmp_path / "stopped", report=stop_at(14), stack=3)
    resumed = train_ensemble(members, tmp_path / "stopped", stack=3)
    whole = train_ensemble(members, tmp_path / "whole", stack=3)
    for one, other in zip(resumed, whole, strict=True):
        assert one.done["resumed_from"] == 14
        assert one.metrics.equals(other.metrics)
        assert one.checkpoints == other.checkpoints
        assert all(map(torch.equal, one.model().parameters(), other.model().parameters()))


def test_a_member_that_was_ahead_keeps_no_checkpoint_past_its_metrics(
    small, tmp_path, whole, stop_at
):
    """Trained again with a new one, and killed at 16, it goes on from there and lacks no
    evaluation.
    """

    def kill(now, row):
        if now >= 16:
            raise ZeroDivisionError  # nothing is saved when it comes

    with pytest.raises(Interrupted, match="Stopped at step 22"):
        train(small, tmp_path, report=stop_at(22))
    with pytest.raises(ZeroDivisionError):
        train_ensemble(seeds(small, 2), tmp_path, report=kill, stack=2)
    alone = train(small, tmp_path)
    assert alone.done["resumed_from"] == 15
    assert_close(alone, whole)


def test_a_member_that_diverges_does_not_touch_the_others(small, tmp_path):
    calm = [small.replace(clip=None), small.replace(clip=None, seed=1)]
    wild = small.replace(clip=None, lr=1e30, seed=2)
    first, lost, last = train_ensemble([calm[0], wild, calm[1]], tmp_path, stack=3)
    assert lost.done is None
    assert lost.diverged["step"] <= small.steps
    assert torch.isfinite(lost.model().W_E).all()
    assert lost.metrics["eval_loss"].notna().all()
    for run in (first, last):
        assert run.diverged is None
        assert_close(run, train(run.config, tmp_path / "alone"))
    stamp = (lost.folder / "diverged.json").stat().st_mtime_ns
    train_ensemble([wild, *calm], tmp_path, stack=3)
    assert (lost.folder / "diverged.json").stat().st_mtime_ns == stamp


# Until an accuracy is reached


def test_each_member_ends_where_it_would_alone(learner, tmp_path):
    """Seed 2 never has 20% of the first answers right; the others do, each at a step of its own."""
    learners = seeds(learner.replace(stop_at_accuracy=0.2), 4)
    together = train_ensemble(learners, tmp_path / "together", stack=4)
    steps = [run.done["steps"] for run in together]
    assert steps[2] == 60 > max(steps[:2] + steps[3:])
    assert len(set(steps)) == 4
    for run, config in zip(together, learners, strict=True):
        solo = train(config, tmp_path / "alone")
        assert_close(run, solo, tolerance=1e-3)
        assert files(run) == files(solo)
        assert run.done["steps"] == solo.done["steps"] == run.checkpoints[-1]
        assert run.done["resumed_from"] == 0
    in_order = sorted(together, key=lambda run: run.done["steps"])
    assert [run.done["ensemble"] for run in in_order] == [4, 4, 2, 1], (
        "half of them gone, the others go on alone"
    )


# What cannot be stacked


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.replace(steps=30), "but steps is not the same"),
        (
            lambda c: c.replace(model=c.model.replace(d_model=16)),
            "but model is not the same",
        ),
        (lambda c: c.replace(name="other"), "Two members are the same run: seed 0"),
    ],
)
def test_members_that_differ_in_another_field_are_refused_by_its_name(small, change, words):
    with pytest.raises(ConfigError, match=words):
        check_members([small, change(small)])


def test_dropout_forks_and_nobody_are_refused(small, tmp_path, whole):
    dropping = small.replace(model=small.model.replace(dropout=0.1))
    forked = fork_config(whole, 10, clamps=[Clamp(what="alpha", layer=0)])
    for sentence, train_them in {
        r"dropout is 0\.1, but members": lambda: train_ensemble([dropping], tmp_path),
        "is a fork": lambda: train_ensemble([forked], tmp_path),
        "at least one member": lambda: train_ensemble([], tmp_path),
        "members is 0": lambda: train(small, tmp_path, members=0),
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            train_them()


# Pieces


def test_an_attention_whose_buffers_depend_on_the_seed_is_not_stacked(small, tmp_path):
    """A stack would give all members the buffers of the first, so they would not be their solo runs."""

    class Gated(Attention):
        def __init__(self, cfg, generator=None, layer=0):
            super().__init__(cfg, generator, layer)
            gate = torch.rand(cfg.n_heads, generator=generator)
            self.register_buffer("gate", gate, persistent=False)

    register_attention("gated", Gated)
    run = small.replace(model=small.model.replace(attention="gated"), init_shift=None, steps=2)
    with pytest.raises(ConfigError, match=r"different buffers.*by a call of train"):
        train_ensemble(seeds(run, 2), tmp_path, stack=2)
    assert len(train_ensemble(seeds(run, 2), tmp_path, stack=1)) == 2


def test_members_are_evaluated_in_evaluation_mode(small, tmp_path):
    class Doubled(Attention):
        """Doubles its output while it trains."""

        def forward(self, x, cache=None):
            return super().forward(x, cache) * (1 + self.training)

    register_attention("doubled", Doubled)
    run = small.replace(model=small.model.replace(attention="doubled"), init_shift=None, steps=2)
    members = seeds(run, 2)
    stacked = train_ensemble(members, tmp_path / "stacked", stack=2)
    for one, member in zip(stacked, members, strict=True):
        assert_close(one, train(member, tmp_path / "alone"))


def test_a_weight_that_is_one_number_keeps_each_members_moments(small, tmp_path):
    class Gained(Attention):
        def __init__(self, cfg, generator=None, layer=0):
            super().__init__(cfg, generator, layer)
            self.gain = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, x, cache=None):
            return super().forward(x, cache) * self.gain

    register_attention("gained", Gained)
    run = small.replace(model=small.model.replace(attention="gained"), init_shift=None)
    whole = train_ensemble(seeds(run, 2), tmp_path / "whole", stack=2)
    again = train_ensemble(seeds(run, 2), tmp_path / "again", stack=2)
    for one in again:
        (one.folder / "done.json").unlink()
        one.checkpoint_path(run.steps).unlink()
    for one, other in zip(
        train_ensemble(seeds(run, 2), tmp_path / "again", stack=2), whole, strict=True
    ):
        assert torch.equal(one.model().layers[0].attn.gain, other.model().layers[0].attn.gain)


def test_stacks_are_few_and_even():
    assert stacks(range(10), 4) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert stacks(range(10), 99) == [list(range(10))]
    assert stacks([], 4) == []


def test_the_cpu_stacks_what_its_cache_takes_or_nothing(small):
    cpu = torch.device("cpu")
    assert best_stack(small, 1000, cpu) == 524_288 // (8 * 12 * 8)
    wide = small.replace(
        model=small.model.replace(d_model=1024)
    )  # 524,288 / (8 * 12 * 1024) is 5.3
    assert best_stack(wide, 100, cpu) == 1
    assert best_stack(wide, 100, torch.device("cuda")) == 100


def test_stacked_rows_have_no_queries_where_a_member_has_none(small):
    few, most = (np.full((4, 16), IGNORE) for _ in range(2))
    few[0, 3], most[:, 2:] = 7, 5
    assert stack_batches([training_batch(few, few), training_batch(most, most)]).queries is None
