"""Between evaluations no step asks the device for a number: on a GPU each time would be a stall."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ihlab.training import loop
from ihlab.training.ensemble import seeds
from ihlab.training.train import train_ensemble

ASKING = {
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::equal",
    "aten::item",
}


class Watch(TorchDispatchMode):
    """Which asking operations are called inside a training step."""

    def __init__(self):
        super().__init__()
        self.inside, self.steps, self.asked = False, 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        out = func(*args, **(kwargs or {}))
        copied = name == "aten::_to_copy" and args[0].device != out.device
        if self.inside and (name in ASKING or copied):
            self.asked.append(name)
        return out

    def step(self, train_step):
        def watched(training, batch):
            self.inside, self.steps = True, self.steps + 1
            train_step(training, batch)
            self.inside = False

        return watched


@pytest.fixture
def watch(monkeypatch):
    made = Watch()
    monkeypatch.setattr(loop.Training, "train_step", made.step(loop.Training.train_step))
    return made


def test_the_watch_sees_a_number_asked_for():
    with Watch() as watch:
        watch.inside = True
        torch.ones(1).item()
        bool(torch.ones(1) > 0)
    assert len(watch.asked) >= 2


@pytest.mark.parametrize("members", [1, 3])
def test_no_step_asks(small, tmp_path, watch, members):
    config = small.replace(accumulate=2, precision="bf16")
    with watch:
        train_ensemble([*seeds(config, members)[1:], config.replace(lr=1e-3)], tmp_path, stack=3)
    assert watch.steps == small.steps
    assert watch.asked == []
