"""Between evaluations no step asks the device for a number: on a GPU each time would be a stall."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ihlab import Clamp, Transformer, train
from ihlab.measure.metrics import Evaluator
from ihlab.training import loop
from ihlab.training.ensemble import seeds
from ihlab.training.fork import fork
from ihlab.training.train import train_ensemble
from tasks import InductionTask, MultiHopTask

ASKING = {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal", "aten::item"}


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


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2, "precision": "bf16"}, {"clip": None, "schedule": "cosine"}])
def test_no_step_asks(small, tmp_path, watch, changes):
    with watch:
        train(small.replace(**changes), tmp_path)
    assert watch.steps == small.steps
    assert watch.asked == []


@pytest.mark.parametrize("task", [InductionTask(vocab_size=40, length=12), MultiHopTask(length=23, max_hops=3)])
def test_an_evaluation_asks_once_when_all_is_counted(small, task):
    evaluator = Evaluator(small.replace(task=task, model=small.model.replace(n_ctx=23)), torch.device("cpu"))
    with Watch() as watch, torch.no_grad():
        watch.inside = True
        evaluator.numbers(Transformer(small.model.replace(n_ctx=23)))
    assert watch.asked == []


def test_no_step_with_dropout_or_under_clamps_asks(small, tmp_path, watch):
    run = train(small.replace(model=small.model.replace(dropout=0.1, positional="learned")), tmp_path)
    held = [Clamp(what="alpha", layer=0), Clamp(what="pattern", layer=0, head=1, value="previous")]
    with watch:
        fork(run, 10, clamps=held, root=tmp_path)
    assert watch.steps == small.steps + small.steps - 10
    assert watch.asked == []


def test_no_step_of_an_ensemble_asks(small, tmp_path, watch):
    with watch:
        train_ensemble([*seeds(small, 2), small.replace(seed=2, lr=1e-3)], tmp_path, stack=3)
    assert watch.steps == small.steps
    assert watch.asked == []
