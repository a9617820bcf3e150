"""Two processes that train one run together make the run that one process makes."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from ihlab import Run, train
from ihlab.training import checkpoint
from ihlab.training.config import to_dict
from ihlab.training.distributed import join_ranks, own_device
from ihlab.training.loop import dropout_seed, microbatches
from tasks import ConfigError

pytestmark = pytest.mark.slow

WORKER = """
    import json, os, signal, sys, torch
    from ihlab import train
    from ihlab.training import loop
    from ihlab.training.config import from_dict
    from ihlab.training.interrupt import Interrupted
    torch.set_num_threads(1)
    train_step = loop.Training.train_step
    def stopping(self, pieces):
        train_step(self, pieces)
        if self.config.name == "stopped" and self.step == 12 and self.ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGINT)
    loop.Training.train_step = stopping
    for config in json.loads(sys.argv[1]):
        try:
            train(from_dict(config), sys.argv[2])
        except Interrupted as stopped:
            print(f"stopped: {stopped}\\n", end="", flush=True)  # one write: the other process prints too
"""


def train_together(configs, root):
    """Train runs one after another in two processes; rank 1 gets a Ctrl-C at step 12 of one named "stopped"."""
    script = root.with_suffix(".py")
    script.write_text(textwrap.dedent(WORKER))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    arguments = [json.dumps([to_dict(config) for config in configs]), str(root)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, *arguments], check=True, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.stdout


@pytest.mark.parametrize(
    ("asked", "with_gpus", "own"),
    [
        ("auto", True, "cuda:3"),
        ("cuda", True, "cuda:3"),
        ("cuda:1", True, "cuda:1"),
        ("cpu", True, "cpu"),
        ("auto", False, "auto"),
        ("cuda", False, "cuda"),
    ],
)
def test_every_process_takes_a_gpu_of_its_own(monkeypatch, asked, with_gpus, own):
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: with_gpus)
    assert own_device(asked) == own


def assert_same_run(one, other):
    assert one.metrics["step"].equals(other.metrics["step"])
    for column in ("train_loss", "eval_loss", "accuracy"):
        expected = torch.tensor(other.metrics[column].to_numpy())
        torch.testing.assert_close(
            torch.tensor(one.metrics[column].to_numpy()), expected, rtol=1e-6, atol=2e-6, equal_nan=True
        )
    assert one.checkpoints == other.checkpoints
    for step in other.checkpoints:
        for ours, theirs in zip(one.model(step).parameters(), other.model(step).parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)


@pytest.fixture(scope="module")
def together(small, learner, tmp_path_factory):
    """The folder of runs trained by two processes, their configs by name, and what the processes printed."""
    configs = {
        "whole": small, "pieces": small.replace(accumulate=2), "stopped": small.replace(seed=1, name="stopped"),
        "until": learner.replace(stop_at_accuracy=0.17), "compiled": small.replace(seed=2, compile=True),
    }  # fmt: skip
    root = tmp_path_factory.mktemp("together") / "runs"
    return root, configs, train_together(configs.values(), root)


def test_two_processes_make_the_run_of_one_whole_in_pieces_and_interrupted(together, tmp_path):
    """Also the mean over two halves with unequal numbers of targets, which a mean of means would get wrong."""
    root, configs, printed = together
    # Word of an interrupt travels for one step, and reaches both at the same.
    assert printed.count("stopped: Stopped at step 13 of 24") == 2
    for config in (configs["whole"], configs["pieces"]):
        run = Run.open(config.folder(root))
        assert run.done["ranks"] == 2
        assert_same_run(run, train(config, tmp_path / "alone"))

    stopped = configs["stopped"]
    run = Run.open(stopped.folder(root))
    assert run.done is None
    # One process goes on where two have been stopped: the training loss of both is in the checkpoint.
    assert checkpoint.load(run.optimizer_path(13))["tally/steps"] == 3
    assert train(stopped, root).done["resumed_from"] == 13
    assert_same_run(run, train(stopped, tmp_path / "alone"))


def test_two_processes_make_the_compiled_run_of_one(together, tmp_path):
    root, configs, _ = together
    run = Run.open(configs["compiled"].folder(root))
    assert run.done["ranks"] == 2
    assert_same_run(run, train(configs["compiled"].replace(compile=False), tmp_path / "alone"))


def test_the_ranks_rows_are_those_of_the_whole_batch(small):
    config = small.replace(seed=3, accumulate=2)
    whole = microbatches(config, 5)
    parts = [microbatches(config, 5, rank, ranks=2) for rank in range(2)]
    for i, piece in enumerate(whole):
        assert torch.equal(torch.cat([part[i].tokens for part in parts]), piece.tokens)
        assert sum(part[i].count for part in parts) == piece.count
    total = sum(piece.count for piece in whole)
    assert {piece.total for pieces in (whole, *parts) for piece in pieces} == {total}


def test_rows_that_ranks_cannot_share_out_are_refused(small):
    with pytest.raises(ConfigError, match=r"batch_size is 8, but must be a multiple of 6: 2 microbatch\(es\).* 3 proc"):
        microbatches(small.replace(accumulate=2), 0, ranks=3)


def test_ranks_drop_differently_and_the_first_as_alone():
    assert dropout_seed(1, 5) == dropout_seed(1, 5, rank=0)
    assert len({dropout_seed(1, 5, rank) for rank in range(8)}) == 8


def test_without_torchrun_there_is_one_rank():
    alone = join_ranks("cpu")
    assert alone.first
    assert (alone.rank, alone.size) == (0, 1)
    share = torch.tensor(3.0)
    assert alone.collect(share) is share
    assert alone.any_asked(True)
    assert not alone.any_asked(False)


def test_two_processes_end_at_the_accuracy_that_one_does(together, tmp_path):
    """Only the first one measures it; both must stop, and neither waits for the other."""
    root, configs, _ = together
    config = configs["until"]
    both, alone = Run.open(config.folder(root)), train(config, tmp_path / "alone")
    assert both.done["ranks"] == 2
    assert both.done["steps"] == alone.done["steps"] == 30
    assert both.metrics["step"].equals(alone.metrics["step"])
    assert both.checkpoints == alone.checkpoints
