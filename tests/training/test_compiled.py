"""Compiled losses: runs of a kind share their graphs, and a run's numbers depend on no other run."""

import json
import textwrap

import pytest
import torch

from ihlab import Clamp, train
from ihlab.measure.loss import summed_loss
from ihlab.training import compiled
from ihlab.training.config import to_dict
from ihlab.training.ensemble import stack_batches
from ihlab.training.loop import microbatches
from tasks import InductionTask
from tests.forked import python

SHARED = """
    import gc, json, sys, weakref, torch
    from torch._dynamo.utils import counters
    from ihlab import train
    from ihlab.training import compiled, loop
    from ihlab.training.config import from_dict

    torch.set_num_threads(1)
    config = from_dict(json.loads(sys.argv[1]))
    made, step = [], loop.Training.train_step

    def noted(self, batch):
        if self.step == 0:
            made.append(weakref.ref(self.in_training.model))
        step(self, batch)

    loop.Training.train_step = noted
    graphs = []
    for seed, lr in ((0, 1e-3), (1, 1e-3), (2, 1e-2)):
        run = train(config.replace(seed=seed, lr=lr), sys.argv[2] + "/warm", report=lambda *_: None)
        graphs.append(counters["stats"]["unique_graphs"])
    compiled.forget()
    alone = train(run.config, sys.argv[2] + "/cold", report=lambda *_: None)
    eager = train(run.config.replace(compile=False), sys.argv[2] + "/eager", report=lambda *_: None)
    losses = [torch.tensor(each.metrics["eval_loss"]) for each in (run, eager)]
    gc.collect()
    print(json.dumps({
        "graphs": graphs,
        "again": counters["stats"]["unique_graphs"],
        "same": alone.metrics.equals(run.metrics),
        "weights": all(map(torch.equal, alone.model().parameters(), run.model().parameters())),
        "close": torch.allclose(*losses, rtol=1e-4, atol=1e-4),
        "alive": sum(model() is not None for model in made[:3]),
    }))
"""


@pytest.mark.rare
def test_runs_of_a_kind_share_one_graph_follow_eager_ones_and_do_not_depend_on_those_before(
    small, tmp_path
):
    """In a process without the shape checks, which torch.compile cannot trace.

    The task's rows have as many scored positions as chance gives them, so that steps are of several
    shapes.
    """
    done = python(
        textwrap.dedent(SHARED), json.dumps(to_dict(small.replace(compile=True))), str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    first, right = found["graphs"][0], {"same": True, "weights": True, "close": True, "alive": 0}
    assert found == {"graphs": [first] * 3, "again": 2 * first, **right}


STACKED = """
    import json, sys, torch
    from torch._dynamo.utils import counters
    from ihlab.training.config import from_dict
    from ihlab.training.train import train, train_ensemble

    torch.set_num_threads(1)
    config = from_dict(json.loads(sys.argv[1]))
    graphs, gaps = [], []
    for first in (0, 3):
        members = [config.replace(seed=first), config.replace(seed=first + 1, lr=2e-3), config.replace(seed=first + 2)]
        runs = train_ensemble(members, sys.argv[2] + "/stacked", report=lambda *_: None, stack=3)
        graphs.append(counters["stats"]["unique_graphs"])
        for run in runs:
            alone = train(run.config.replace(compile=False), sys.argv[2] + "/alone", report=lambda *_: None)
            columns = ["train_loss", "eval_loss"]
            gaps.append((run.metrics[columns] - alone.metrics[columns]).abs().max().max())
    print(json.dumps({"graphs": graphs, "gap": max(gaps)}))
"""


@pytest.mark.rare
def test_stacks_of_a_kind_share_graphs_and_members_follow_their_eager_runs(small, tmp_path):
    """Steps have as many queries as chance gives them: there is a graph for each size after
    padding.
    """
    task = InductionTask(vocab_size=48, length=32)
    config = small.replace(
        task=task, model=small.model.replace(n_ctx=32, d_vocab=48), steps=4, compile=True
    )

    def stacked(seeds, step):
        members = [microbatches(config.replace(seed=seed), step)[0] for seed in seeds]
        return stack_batches(members, half=True)

    one, other = (
        {
            (batch.index.shape, batch.queries.shape)
            for batch in (stacked(seeds, step) for step in range(config.steps))
        }
        for seeds in (range(3), range(3, 6))
    )
    done = python(textwrap.dedent(STACKED), json.dumps(to_dict(config)), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["graphs"] == [len(one), len(one | other)]
    assert found["gap"] < 1e-4


TRACED = """
    import torch
    from itertools import islice
    from ihlab import Transformer
    from ihlab.measure.gathered import training_batch
    from ihlab.measure.loss import summed_loss
    from tests.model import covering

    tokens = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(0))
    targets = torch.full_like(tokens, -100).scatter(1, torch.tensor([[3, 7]] * 3), 5)
    batch = training_batch(tokens.numpy(), targets.numpy())
    gathered = (batch.tokens, batch.index, batch.targets, batch.queries)
    configs = map(covering.config, covering.pairs())
    for config in islice((c for c in configs if c.unembedding == "linear"), 0, None, 8):
        torch.compiler.reset()
        model = Transformer(config).eval()
        traced = torch.compile(summed_loss, fullgraph=True, backend="eager")
        for arguments in (gathered, (tokens, None, tokens.flatten())):
            torch.testing.assert_close(traced(model, *arguments), summed_loss(model, *arguments))
"""


@pytest.mark.slow
def test_the_training_loss_of_every_eighth_model_is_one_graph():
    """Else torch trains it in pieces, or uncompiled, and says nothing."""
    done = python(textwrap.dedent(TRACED))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def resets(monkeypatch):
    """Count how often all graphs are forgotten."""
    seen = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: seen.append(1))
    monkeypatch.setattr(compiled, "_current", [])
    return seen


CPU = torch.device("cpu")


def test_graphs_are_kept_for_runs_of_one_kind_and_forgotten_for_another(small, resets):
    small = small.replace(compile=True)
    wide = small.replace(model=small.model.replace(d_model=32))
    for config in (small, small.replace(seed=3, lr=0.1, steps=7, name="other"), small):
        compiled.compiled(summed_loss, config, CPU)
    assert len(resets) == 1
    for after, config in enumerate((wide, small), start=2):
        for _ in range(2):
            compiled.compiled(summed_loss, config, CPU)
        assert len(resets) == after


def test_a_clamped_run_shares_its_graphs_with_no_other(small, resets):
    """A clamp is a hook, which no guard of a graph looks at."""
    small = small.replace(compile=True)
    clamped = small.replace(clamped=(Clamp(what="alpha", layer=0, column=1, value=0.0),))
    for after, config in enumerate((small, clamped, clamped, small), start=1):
        compiled.compiled(summed_loss, config, CPU)
        assert len(resets) == after
    compiled.compiled(summed_loss, small, CPU)
    assert len(resets) == 4


def test_without_a_compiler_a_run_is_trained_without_and_says_so(
    small, whole, monkeypatch, tmp_path
):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiled.compiled(summed_loss, small, CPU) is summed_loss  # which asks for none
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler 'no-such-compiler'"):
        assert compiled.compiled(summed_loss, small.replace(compile=True), CPU) is summed_loss
    with pytest.warns(UserWarning, match="not compiled, so it is slower"):
        run = train(small.replace(compile=True), tmp_path)
    assert run.metrics.equals(whole.metrics)
