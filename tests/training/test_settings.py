"""A run is determined by its config: settings of torch that the calling code has on do not change it, and stay on."""

from contextlib import contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ihlab import fork, train
from tasks import ConfigError


@contextmanager
def set_to(get, put, value):
    before = get()
    put(value)
    try:
        yield
        assert get() == (torch.device(value) if isinstance(before, torch.device) else value)
    finally:
        put(before)


SETTINGS = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta": lambda: torch.device("meta"),
    "default_device": lambda: set_to(torch.get_default_device, torch.set_default_device, "meta"),
    "float64": lambda: set_to(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "bfloat16": lambda: set_to(torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16),
    "matmul": lambda: set_to(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "deterministic": lambda: set_to(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("members", [None, 2])
def test_a_run_is_the_same_under_any_setting_of_the_caller(small, tmp_path, whole, setting, members):
    if members:
        alone = train(small, tmp_path / "alone", members=members)[0]
    with setting():
        run = train(small, tmp_path, members=members)
        run = run[0] if members else run
        weights = run.model().state_dict()
        branch = fork(run, run.checkpoints[1], steps=small.steps, root=tmp_path)
    alone = alone if members else whole
    assert run.metrics.equals(alone.metrics)
    for name, weight in alone.model().state_dict().items():
        assert torch.equal(weight, weights[name])
        assert not weights[name].is_inference()
    if not members:
        assert branch.metrics["eval_loss"].iloc[-1] == whole.metrics["eval_loss"].iloc[-1]


def test_a_mode_without_values_is_refused(small, tmp_path):
    with FakeTensorMode(), pytest.raises(ConfigError, match="A mode of torch in which tensors have no values is on"):
        train(small, tmp_path)
