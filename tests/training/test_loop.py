"""The optimiser, the learning rate, the batches of a step, the step, and the model that a run
starts from.
"""

import math
from dataclasses import replace

import pytest
import torch

from ihlab import Transformer
from ihlab.training.config import constant_steps
from ihlab.training.ensemble import Stack, seeds
from ihlab.training.loop import (
    SingleModel,
    Training,
    initial_model,
    learning_rate,
    make_optimizer,
    microbatches,
    prefetch,
)
from ihlab.training.run import Run
from ihlab.training.run_writer import TrainingDivergedError
from ihlab.training.train import train
from tasks import ConfigError


def test_a_step_without_gradient_shrinks_matrices_and_nothing_else(small):
    model = Transformer(small.model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, small.replace(lr=0.1, weight_decay=0.5))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        shrunk = 1.0 if "shift" in name or "ln" in name else 1 - 0.1 * 0.5
        torch.testing.assert_close(p.detach(), before[name] * shrunk)
    assert optimizer.defaults["betas"] == (0.9, 0.95)


def test_rows_that_no_batch_reads_shrink_by_decay_alone_and_stay_if_undecayed(small, tmp_path):
    """Of eight learned positions the task trains four: the others fall by (1 - lr * decay) a step."""
    task = replace(small.task, length=4)
    model = small.model.replace(positional="learned", n_ctx=8)
    config = small.replace(
        task=task, model=model, steps=6, warmup=0, schedule="constant", lr=0.1, weight_decay=0.5
    )
    drawn = initial_model(config).pos_embed.weight.detach()[4:]
    for undecayed, factor in ((), (1 - 0.1 * 0.5) ** 6), (("pos_embed.weight",), 1.0):
        trained = (
            train(config.replace(undecayed=undecayed), tmp_path).model().pos_embed.weight.detach()
        )
        torch.testing.assert_close(trained[4:], drawn * factor)


@pytest.mark.parametrize(
    ("schedule", "fractions"),
    [
        ("constant", {35: 1, 60: 1, 110: 1}),
        ("linear", {35: 0.75, 60: 0.5, 110: 0}),
        ("cosine", {35: 0.5 * (1 + math.cos(math.pi / 4)), 60: 0.5, 110: 0}),
        ("trapezoid", {60: 1, 88: 1, 89: 21 / 22, 99: 0.5, 110: 0}),  # the last 22 steps fall
    ],
)
def test_schedule(small, schedule, fractions):
    run = small.replace(schedule=schedule, warmup=10, steps=110, lr=2.0)
    for step, fraction in {0: 0.1, 4: 0.5, 9: 1, **fractions}.items():
        assert learning_rate(run, step) == pytest.approx(2 * fraction, abs=1e-12), step
    assert constant_steps(run) == (88 if schedule == "trapezoid" else 110)


# Batches


def test_a_step_does_not_depend_on_the_steps_before_it(small):
    walked = list(prefetch(lambda step: microbatches(small, step), 0, 5))
    jumped = microbatches(small, 4)
    assert torch.equal(walked[4][0].tokens, jumped[0].tokens)
    assert torch.equal(walked[4][0].targets, jumped[0].targets)
    pieces = microbatches(small.replace(accumulate=4), 4)
    assert torch.equal(torch.cat([piece.tokens for piece in pieces]), jumped[0].tokens)
    assert sum(piece.count for piece in pieces) == jumped[0].count
    assert {piece.total for piece in pieces} == {jumped[0].total}


# The step


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("clip", [0.01, 100.0, None])
def test_each_model_is_updated_by_a_gradient_of_at_most_the_norm_asked_for(
    small, tmp_path, members, clip
):
    runs = [Run.create(config, tmp_path) for config in seeds(small.replace(clip=clip), members)]
    training = Training(runs, torch.device("cpu"), stacked=members > 1)
    norms = []

    def measure(*_):
        squares = [
            p.grad.reshape(members, -1).square().sum(dim=1) for p in training.parameters.values()
        ]
        norms.append(torch.stack(squares).sum(dim=0).sqrt())

    training.optimizer.register_step_pre_hook(measure)
    training.train_step(training.batches(0))
    [found] = norms
    assert found.shape == (members,)
    if clip == 0.01:
        torch.testing.assert_close(found, torch.full((members,), clip), rtol=1e-3, atol=0)
    else:
        assert ((found > 0.1) & (found < 50)).all()


# The start


def test_heads_start_where_the_run_says(small):
    config = small.replace(
        model=small.model.replace(n_layers=2, shift_window=3), init_shift=(0.2, 0.6), seed=3
    )
    model, plain = initial_model(config), Transformer(config.model, seed=3)
    for block in model.layers:
        torch.testing.assert_close(block.attn.alpha, torch.tensor([[0.2, 0.4, 0.4]] * 2))
        torch.testing.assert_close(block.attn.beta, torch.tensor([[0.6, 0.2, 0.2]] * 2))
    theirs = dict(plain.named_parameters())
    for name, ours in model.named_parameters():
        assert ("shift" in name) != torch.equal(ours, theirs[name])


@pytest.mark.parametrize("members", [None, 2])
def test_weights_that_are_not_finite_are_no_result(small, tmp_path, monkeypatch, members):
    """The loss is taken before a step, so that the last step can spoil the weights unseen."""
    step = Training.train_step

    def spoiled(training, pieces):
        step(training, pieces)
        if training.step == small.steps:
            next(iter(training.parameters.values())).data[0] = float("inf")

    monkeypatch.setattr(Training, "train_step", spoiled)
    sound = {"eval_loss": 1.0, "accuracy": 0.5, "accuracy_first": 0.5}
    for model in (SingleModel, Stack):
        monkeypatch.setattr(model, "evaluate", lambda *_: [sound] * (members or 1))
    if members is None:
        with pytest.raises(
            TrainingDivergedError, match=f"a weight is not finite at step {small.steps}"
        ):
            train(small, tmp_path, "cpu")
        ended = [Run.open(small.folder(tmp_path))]
    else:
        ended = train(small, tmp_path, "cpu", members=members)
    assert any(run.diverged for run in ended)
    assert all(run.done is None for run in ended if run.diverged)


def test_a_folder_that_is_not_utf_8_is_refused_before_training(small, tmp_path):
    with pytest.raises(ConfigError, match="is not UTF-8, as it must be"):
        train(small, f"{tmp_path}/\udcff", "cpu")
    assert not list(tmp_path.iterdir())


def test_a_cut_library_in_the_cache_of_torch_is_explained(small, tmp_path, monkeypatch):
    def broken(*arguments):
        raise OSError("/tmp/torchinductor/x.so: file too short")

    monkeypatch.setattr("ihlab.training.compiled._compiled", lambda *arguments: broken)
    monkeypatch.setattr("ihlab.training.compiled.can_compile", lambda device: True)
    with pytest.raises(
        ConfigError, match=r"file too short\): delete its cache, .*, and start again"
    ):
        train(small.replace(compile=True), tmp_path, "cpu")
