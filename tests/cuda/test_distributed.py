"""The process group of a rank on the device: nccl beside gloo on a GPU. Two ranks, by gloo: tests/training."""

import socket

import pytest
import torch
from torch import distributed as dist

from ihlab import Transformer
from ihlab.measure.loss import summed_loss
from ihlab.training import distributed
from ihlab.training.loop import microbatches

pytestmark = pytest.mark.slow


@pytest.fixture
def ranks(device, monkeypatch):
    """A rank that communicates, as one of several does, in a group that has no other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in group.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "n_ranks", lambda: 2)
    monkeypatch.setattr(distributed.atexit, "register", lambda leave: None)
    try:
        yield distributed.join_ranks(device.type)
    finally:
        dist.destroy_process_group()


def test_gradients_are_all_reduced_on_the_device_and_words_beside_it(ranks, device, small):
    assert ranks.device.type == device.type
    assert ("cuda:nccl" in dist.get_backend_config()) == (device.type == "cuda")
    model, solo = (Transformer(small.model, seed=1).to(device) for _ in range(2))
    batch = microbatches(small, 0)[0].to(device)
    parallel = ranks.data_parallel(model)
    (parallel(*batch.tensors) / batch.total).backward()
    (summed_loss(solo, *batch.tensors) / batch.total).backward()
    for ours, theirs in zip(model.parameters(), solo.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    own = torch.tensor(3.0, device=device)
    assert ranks.collect(own).item() == 3
    assert own.item() == 3
    assert ranks.from_first(0.1) == 0.1
    ranks.require_same("runs", 7)
    assert [ranks.any_asked(asked) for asked in (False, True, False)] == [False, False, True]
    ranks.wait()
