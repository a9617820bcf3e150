"""Forks: what nothing is held in is the plain continuation bit for bit, and what is held does not
move.
"""

import json
import shutil
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
import torch

from ihlab import Run, train
from ihlab.measure.metrics import Evaluator
from ihlab.training import checkpoint
from ihlab.training.clamp import Clamp
from ihlab.training.config import from_dict, to_dict
from ihlab.training.fork import fork, fork_config
from ihlab.training.interrupt import Interrupted
from tasks import ConfigError

AT = 10  # `small` keeps checkpoints at 0, 10, 15 and 24
ALPHA2_OFF = Clamp(what="alpha", layer=0, column=1, value=0)


@pytest.fixture
def parent(whole, tmp_path):
    """A copy of the finished run of `small`."""
    return Run.open(shutil.copytree(whole.folder, tmp_path / "parents" / whole.folder.name))


def same_state(one, other, step):
    """Whether two runs hold the same weights and optimiser state at a step, bit for bit."""
    for path in ("checkpoint_path", "optimizer_path"):
        ours, theirs = (checkpoint.load(getattr(run, path)(step)) for run in (one, other))
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            if name != "tally/seconds":
                assert torch.equal(tensor, theirs[name]), name


# Without clamps


@pytest.mark.parametrize(("schedule", "step"), [("cosine", 0), ("trapezoid", 15)])
def test_a_fork_that_holds_nothing_is_the_plain_continuation(small, tmp_path, schedule, step):
    whole = train(small.replace(schedule=schedule), tmp_path)
    forked = fork(whole, step, root=tmp_path)
    assert forked.folder != whole.folder
    for kept in set(forked.checkpoints) & set(whole.checkpoints):
        same_state(forked, whole, kept)
    assert {step, small.steps} <= set(forked.checkpoints)
    theirs = whole.metrics[whole.metrics["step"] >= step].reset_index(drop=True)
    theirs.loc[0, "train_loss"] = float("nan")  # nothing was trained in the fork yet
    pd.testing.assert_frame_equal(forked.metrics, theirs, check_exact=True)


def test_a_falling_learning_rate_goes_on_along_the_parents(small, tmp_path):
    whole = train(small.replace(schedule="linear"), tmp_path)
    shorter = fork(whole, AT, steps=20, root=tmp_path)
    same_state(shorter, whole, 15)
    again = fork(
        shorter, 15, steps=24, root=tmp_path
    )  # past its own parent's end, not past the first one's
    same_state(again, whole, 24)
    with pytest.raises(
        ConfigError,
        match=r"steps is 25, but the parent's linear learning rate is 0 from step 24 on",
    ):
        fork(whole, AT, steps=25, root=tmp_path)


def test_a_fork_may_train_on_another_task(tmp_path, parent):
    """It starts from the parent's weights."""
    other = replace(parent.config.task, period=2)
    forked = fork(parent, AT, task=other, root=tmp_path)
    assert Run.open(forked.folder).config.task == other
    evaluated = Evaluator(forked.config, torch.device("cpu"))(parent.model(AT))
    assert forked.metrics["eval_loss"].iloc[0] == pytest.approx(evaluated["eval_loss"], abs=1e-6)
    assert not any(map(torch.equal, forked.model().parameters(), parent.model().parameters()))


# Interrupted


def test_a_fork_of_an_interrupted_run_counts_its_own_loss_only(small, tmp_path, parent, stop_at):
    with pytest.raises(Interrupted, match="Stopped at step 14 of 24"):
        train(small, tmp_path / "stopped", report=stop_at(14))  # between two evaluations
    forked = fork(Run.open(small.folder(tmp_path / "stopped")), 14, root=tmp_path)
    same_state(forked, parent, 24)
    ours, theirs = (run.metrics.set_index("step") for run in (forked, parent))
    pd.testing.assert_frame_equal(ours.loc[20:], theirs.loc[20:], check_exact=True)
    # One step's, of the parent's five:
    assert ours.loc[15, "train_loss"] != theirs.loc[15, "train_loss"]


@pytest.mark.parametrize("left", ["config", "optimizer", "start"])
def test_a_fork_that_died_while_it_was_made_is_made_again(tmp_path, parent, left):
    whole = fork(parent, AT, clamps=[ALPHA2_OFF], root=tmp_path / "whole")
    died = Run.create(whole.config, tmp_path / "died")
    (died.folder / "checkpoints").mkdir()
    if left != "config":
        shutil.copy(whole.optimizer_path(AT), died.optimizer_path(AT))
    if left == "start":
        shutil.copy(whole.checkpoint_path(AT), died.checkpoint_path(AT))
    else:
        with pytest.raises(
            ConfigError, match="is a fork without the checkpoint it starts from: call fork again"
        ):
            train(whole.config, tmp_path / "died")
    again = fork(parent, AT, clamps=[ALPHA2_OFF], root=tmp_path / "died")
    assert again.metrics.equals(whole.metrics)
    same_state(again, whole, 24)


# Clamps


def test_a_clamp_holds_exactly_at_every_step_and_nothing_else_does(tmp_path, parent):
    """What the forward pass mixes with is in the metrics, what is stored in the checkpoints."""
    clamps = [
        Clamp(what="beta", layer=0, head=0, column=0),
        Clamp(what="alpha", layer=0, head=1, value=2),
    ]
    forked = fork(parent, AT, clamps=clamps, root=tmp_path)
    held = parent.model(AT).layers[0].attn.beta[0, 0].item()
    values = {("beta", 0, 0): {held}, ("alpha", 1, 0): {2}, ("alpha", 1, 1): {2}}
    attentions = [forked.model(kept).layers[0].attn for kept in forked.checkpoints]
    for what, row, column in product(("alpha", "beta"), range(2), range(2)):
        stored = [getattr(attn, what)[row, column].item() for attn in attentions]
        seen = {*stored, *forked.metrics[f"{what}{column + 1}_0.{row}"]}
        assert seen == values.get((what, row, column), seen)
        assert (len(seen) > 2) == ((what, row, column) not in values)


def test_a_fork_with_a_set_pattern_opens_as_it_was_trained(tmp_path, parent):
    forked = fork(
        parent, AT, clamps=[Clamp(what="pattern", layer=0, head=1, value="previous")], root=tmp_path
    )
    evaluate, rows = Evaluator(forked.config, torch.device("cpu")), forked.metrics.set_index("step")
    for step in forked.checkpoints:
        measured = evaluate(forked.model(step))
        assert {key: rows.loc[step, key] for key in measured} == measured


# Rewound weights and new moments


def test_new_moments_are_zero_and_nothing_else_changes(tmp_path, parent):
    forked = fork(parent, AT, new_moments=True, root=tmp_path)
    assert all(map(torch.equal, forked.model(AT).parameters(), parent.model(AT).parameters()))
    state = checkpoint.load(forked.optimizer_path(AT))
    assert all((tensor == 0).all() for name, tensor in state.items() if name.startswith("exp_avg"))
    assert all(tensor == AT for name, tensor in state.items() if name.startswith("step/"))


# Configs


def test_the_hash_covers_parent_step_and_clamps_but_no_names(tmp_path, small, parent):
    other = train(small.replace(seed=1), tmp_path)
    changes = [
        {},
        {"step": 15},
        {"clamps": [Clamp(what="alpha", layer=0, column=0, value=0)]},
        {"new_moments": True},
        {"run": other},
    ]
    usual = {"run": parent, "step": AT, "clamps": [ALPHA2_OFF]}
    digests = {fork_config(**usual | change).digest for change in changes}
    assert len({*digests, parent.config.digest, fork_config(parent, AT).digest}) == len(changes) + 2
    renamed = Run(parent.folder, small.replace(name="renamed"))
    assert fork_config(**usual | {"run": renamed, "name": "other"}).digest in digests


@pytest.mark.parametrize(
    ("step", "changes", "sentence"),
    [
        (3, {}, "no checkpoint at step 3; it has 0, 10, 15, 24"),
        (AT, {"clamps": [Clamp(what="alpha", layer=1)]}, "Clamp.layer is 1, .* n_layers is 1"),
    ],
)
def test_what_cannot_be_forked_is_named_and_leaves_nothing(
    tmp_path, parent, step, changes, sentence
):
    with pytest.raises(ConfigError, match=sentence):
        fork(parent, step, **changes, root=tmp_path / "forks")
    assert not (tmp_path / "forks").exists()
    parent.optimizer_path(AT).unlink()
    with pytest.raises(ConfigError, match=f"a model at step {AT} but no optimiser state"):
        fork(parent, AT, root=tmp_path / "forks")


# Clamps from the first step


@pytest.mark.parametrize(
    "clamp",
    [ALPHA2_OFF, Clamp(what="pattern", layer=0, head=0, value="previous")],
    ids=["alpha", "pattern"],
)
def test_a_run_that_is_clamped_from_the_start_is_the_fork_of_step_0(small, tmp_path, whole, clamp):
    """A fork of it is free."""
    forked = fork(whole, 0, clamps=[clamp], root=tmp_path)
    clamped = train(small.replace(clamped=(clamp,)), tmp_path)
    assert clamped.folder != forked.folder
    for step in (0, 10, small.steps):
        same_state(clamped, forked, step)
    for run in (clamped, forked):
        assert from_dict(json.loads(json.dumps(to_dict(run.config)))) == run.config
    stored = to_dict(forked.config)
    stored["fork"]["rewound"] = []  # a removed field
    assert from_dict(stored) == forked.config
    assert fork_config(clamped, 10).clamps == ()
