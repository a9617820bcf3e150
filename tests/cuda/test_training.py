"""Training on the device: bf16, compiled, interrupted and resumed elsewhere, and steps that never
wait for the GPU.
"""

import copy
import functools
import os
import signal

import pytest
import torch

from ihlab import Run, train
from ihlab.runtime.modes import evaluating
from ihlab.training import loop
from ihlab.training.ensemble import seeds
from ihlab.training.interrupt import Interrupted
from ihlab.training.train import train_ensemble

pytestmark = pytest.mark.slow


def losses(run):
    return torch.tensor(run.metrics[["train_loss", "eval_loss"]].to_numpy())


def assert_close(run, other, tolerance):
    torch.testing.assert_close(losses(run), losses(other), rtol=0, atol=tolerance, equal_nan=True)


def test_a_run_is_that_of_the_cpu(short, device, tmp_path):
    run = train(short, tmp_path / "there", str(device))
    assert_close(run, train(short, tmp_path / "cpu", "cpu"), 1e-4)


def test_bf16_follows_fp32_and_keeps_weights_in_float32(short, device, tmp_path):
    run = train(short.replace(precision="bf16"), tmp_path, str(device))
    assert_close(run, train(short, tmp_path, str(device)), 0.05)
    assert {p.dtype for p in run.model(device=device).parameters()} == {torch.float32}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_compiled_run_is_the_eager_one(short, gpu, tmp_path, precision):
    config = short.replace(precision=precision, accumulate=2)
    tolerance = 1e-3 if precision == "fp32" else 0.05
    compiled = train(config.replace(compile=True), tmp_path, str(gpu))
    assert_close(compiled, train(config, tmp_path, str(gpu)), tolerance)


def test_checkpoints_open_and_go_on_on_the_cpu(short, device, tmp_path, monkeypatch):
    monkeypatch.setattr("ihlab.training.loop.REPORT_EVERY", 0.0)

    def stop(step, row):
        if step >= 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="Stopped at step 7 of 10"):
        train(short, tmp_path, str(device), report=stop)
    stored = Run.open(short.folder(tmp_path))
    model = stored.model()
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    tokens = torch.randint(40, (2, 12), generator=torch.Generator().manual_seed(0))
    there = copy.deepcopy(model).to(device)
    with evaluating(model), evaluating(there), torch.no_grad():
        torch.testing.assert_close(
            there(tokens.to(device)).cpu(), model(tokens), rtol=1e-4, atol=1e-4
        )
    run = train(short, tmp_path, "cpu")
    assert run.done["resumed_from"] == 7
    assert_close(run, train(short, tmp_path / "whole", "cpu"), 1e-4)


# Between evaluations nothing waits for the device


def asks(method):
    """A method that may wait for the device; after it nothing may."""

    @functools.wraps(method)
    def asking(*arguments):
        torch.cuda.set_sync_debug_mode("default")
        try:
            return method(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode("error")

    return asking


@pytest.fixture
def no_waiting(device, monkeypatch):
    """On a GPU an error at every wait but those of evaluations and checkpoints. On the CPU
    tests/training watches.
    """
    if device.type == "cpu":
        yield
        return
    for name in ("_evaluate", "_save", "_conclude_reached"):
        monkeypatch.setattr(loop.Training, name, asks(getattr(loop.Training, name)))
    yield
    torch.cuda.set_sync_debug_mode("default")


def wide(config, device):
    """On a GPU as many tokens as take other kernels than a few do: embeddings have one for up to
    3072.
    """
    return config.replace(batch_size=512) if device.type == "cuda" else config


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2, "precision": "bf16"}], ids=str)
def test_no_step_waits(short, device, tmp_path, changes, no_waiting):
    assert train(wide(short, device).replace(**changes), tmp_path, str(device)).done


def test_no_step_of_an_ensemble_waits(short, device, tmp_path, no_waiting):
    config = wide(short, device)
    assert all(
        run.done
        for run in train_ensemble(
            [*seeds(config, 2), config.replace(seed=2, lr=1e-3)], tmp_path, str(device), stack=3
        )
    )
