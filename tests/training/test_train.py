"""Training: it learns, resumes bit for bit, reuses what is finished and stops clearly when it
diverges.
"""

import os
import re
import signal

import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, Run, RunConfig, fork, train
from ihlab.measure.metrics import Evaluator
from ihlab.model.config import GPT2
from ihlab.training import loop
from ihlab.training.interrupt import Interrupted
from ihlab.training.loop import dropout_seed
from ihlab.training.run_writer import TrainingDivergedError
from tasks import ConfigError, InductionTask


def test_a_one_layer_shifted_model_learns_induction(tmp_path):
    task = InductionTask(vocab_size=48, length=16)
    model = ModelConfig(
        n_layers=1, d_model=32, n_heads=2, d_vocab=48, n_ctx=16, attention="kv_shift"
    )
    config = RunConfig(task=task, model=model, steps=250, lr=1e-2, warmup=20, eval_rows=256)
    accuracy = train(config.replace(stop_at_accuracy=0.9), tmp_path).metrics["accuracy_first"]
    assert accuracy.iloc[0] < 0.15
    assert accuracy.iloc[-1] >= 0.9


def test_a_finished_run_is_found_by_its_hash_under_any_name_and_reused(small, tmp_path, finished):
    before = (finished.folder / "done.json").stat().st_mtime_ns
    for config in (small, small.replace(name="other")):
        assert train(config, tmp_path).folder == finished.folder
    assert (finished.folder / "done.json").stat().st_mtime_ns == before
    assert list(tmp_path.iterdir()) == [finished.folder]


def test_a_warmup_that_is_longer_than_the_run_is_said(small, tmp_path):
    run = small.replace(steps=4, warmup=10, lr=1e-2)
    with pytest.warns(
        UserWarning,
        match=r"warmup is 10, but the run has 4 steps: .* to 0.004 and never to lr=0.01",
    ):
        train(run, tmp_path)
    with pytest.warns(UserWarning, match="warmup is 10"):
        train(run, tmp_path, members=2)
    train(run, tmp_path)  # finished: nothing is trained, and a warning would be an error


def test_accumulated_pieces_give_the_same_run_to_rounding(small, tmp_path, whole):
    run = train(small.replace(accumulate=4), tmp_path)
    losses = [each.metrics["eval_loss"].tolist() for each in (run, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("at", [14, 5])
def test_ctrl_c_saves_where_it_is_and_goes_on_bit_for_bit(small, tmp_path, whole, stop_at, at):
    """Step 14 is between two evaluations: the tally of the training loss must survive too.

    Step 5 is an evaluation without a checkpoint: the loss has just been read, so there is none to
    judge the step by.
    """
    with pytest.raises(Interrupted, match=f"Stopped at step {at} of 24, saved in"):
        train(small, tmp_path, report=stop_at(at))
    assert Run.open(small.folder(tmp_path)).checkpoints[-1] == at
    resumed = train(small, tmp_path)
    assert (resumed.folder / "metrics.csv").read_bytes() == (
        whole.folder / "metrics.csv"
    ).read_bytes()
    assert resumed.checkpoints == whole.checkpoints


# Dropout


@pytest.fixture
def dropping(small):
    return small.replace(model=small.model.replace(**GPT2, dropout=0.3))


def test_dropout_depends_on_no_randomness_of_the_caller_and_leaves_it_alone(dropping, tmp_path):
    runs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        expected = torch.rand(3)
        torch.manual_seed(seed)
        runs.append(train(dropping, tmp_path / str(seed)))
        assert torch.equal(torch.rand(3), expected)
    assert runs[0].metrics.equals(runs[1].metrics)


def test_each_step_and_seed_drops_anew_and_evaluations_drop_nothing(
    dropping, tmp_path, monkeypatch
):
    """The recorded evaluation is that of the stored model as it is opened."""
    loss, used = loop.summed_loss, []

    def watched(model, *batch):
        used.append((torch.initial_seed(), model.training))
        return loss(model, *batch)

    monkeypatch.setattr(loop, "summed_loss", watched)
    run = train(dropping, tmp_path)
    expected = [dropout_seed(dropping.seed, step) for step in range(dropping.steps)]
    assert used == [(seed, True) for seed in expected]
    seeds = {dropout_seed(seed, step) for seed in range(20) for step in range(20)}
    assert len(seeds) == 400
    evaluate = Evaluator(dropping, torch.device("cpu"))
    recorded = run.metrics.set_index("step")["eval_loss"]
    for step in run.checkpoints:
        assert evaluate(run.model(step))["eval_loss"] == pytest.approx(recorded[step], rel=1e-9)


# Until an accuracy is reached


def test_a_run_ends_at_the_first_evaluation_that_reaches_until(learner, tmp_path, learned):
    """Metrics up to there are those of a run that goes on."""
    config, seen = learner.replace(stop_at_accuracy=0.17), []
    run = train(config, tmp_path, report=lambda step, row: seen.append((step, row["step"])))
    enough = learned.metrics["accuracy_first"] >= 0.17
    end = learned.metrics["step"][enough.idxmax()]
    assert 0 < end < learner.steps
    assert seen[-1] == (end, end)
    assert run.metrics.equals(learned.metrics[learned.metrics["step"] <= end])
    assert run.checkpoints == sorted({*(s for s in learned.checkpoints if s < end), end})
    assert run.done["steps"] == end
    row = Evaluator(learner, torch.device("cpu"))(run.model())
    assert row["eval_loss"] == run.metrics["eval_loss"].iloc[-1]
    before = (run.folder / "done.json").read_bytes()
    train(config, tmp_path)
    assert (run.folder / "done.json").read_bytes() == before


def test_an_interrupt_in_the_last_step_is_not_lost(small, tmp_path):
    """The run is finished, but who trains several stops with it."""

    def interrupt(record):
        if record["step"] == small.steps:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(
        Interrupted, match=f"Stopped at step {small.steps} of {small.steps}, saved in"
    ):
        train(small, tmp_path, callback=interrupt)
    assert Run.open(small.folder(tmp_path)).done["steps"] == small.steps


# What goes wrong


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_its_checkpoints(small, tmp_path):
    wild = small.replace(lr=1e30, clip=None)
    with pytest.raises(
        TrainingDivergedError,
        match=r"not finite at step \d+ .*the last checkpoint, step \d+, is kept",
    ):
        train(wild, tmp_path)
    run = Run.open(wild.folder(tmp_path))
    assert run.done is None
    assert run.checkpoints[0] == 0
    assert torch.isfinite(run.model().W_E).all()
    assert run.metrics["eval_loss"].notna().all()


@pytest.mark.parametrize("file", ["checkpoint_path", "optimizer_path"])
def test_a_checkpoint_that_does_not_serve_is_named_left_alone_and_can_be_deleted(
    small, tmp_path, finished, file
):
    (finished.folder / "done.json").unlink()
    last = getattr(finished, file)(small.steps)
    last.write_bytes(spoiled := last.read_bytes()[:100])
    with pytest.raises(ConfigError, match=f"{last.name} cannot be read"):
        train(small, tmp_path)
    assert last.read_bytes() == spoiled
    last.unlink()
    again = train(small, tmp_path)
    assert again.done["resumed_from"] == small.checkpoint_steps()[-2]
    assert again.done["seconds"] > 0


@pytest.mark.parametrize("members", [1, 8])
def test_the_callback_gets_the_rows_of_every_runs_metrics_once(small, tmp_path, members):
    records = []
    runs = train(small, tmp_path, members=members, callback=records.append)
    for run in runs:
        own = pd.DataFrame([record for record in records if record["run"] == run.folder.name])
        pd.testing.assert_frame_equal(own.drop(columns="run"), run.metrics)
    for name in ("small", "other"):
        said = re.escape(
            f"An equal run had ended before in {runs[0].folder}{' and 7 more' if members == 8 else ''}: "
        )
        with pytest.warns(UserWarning, match=said):
            train(small.replace(name=name), tmp_path, members=members, callback=records.append)
    assert len(records) == sum(len(run.metrics) for run in runs)


def test_what_is_no_callback_is_refused_before_anything_is_written(small, tmp_path, whole):
    with pytest.raises(ConfigError, match=r"callback is 3, but must be a function of a dict\.$"):
        train(small, tmp_path / "runs", callback=3)
    with pytest.raises(ConfigError, match="callback is "):
        fork(whole, whole.checkpoints[1], root=tmp_path / "runs", callback=3)
    assert not list(tmp_path.iterdir())
