"""Training on packed documents: losses of each document alone, and what cannot read them refuses."""

import pytest
import torch
from torch.nn import functional as F

from ihlab import ModelConfig, Transformer, train
from ihlab.interp.ablation import ablate_heads
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.training.loop import SingleModel, microbatches
from ihlab.training.train import train_ensemble
from tasks import IGNORE, ConfigError, TextTask
from tests.model.test_documents import alone

MODEL = ModelConfig(
    n_layers=2, d_model=8, n_heads=2, d_vocab=256, n_ctx=40, attention="kv_shift", canon="OM"
)


@pytest.fixture
def task(tmp_path):
    """Documents of 10 to 40 bytes."""
    (tmp_path / "corpus").mkdir()
    for i in range(60):
        (tmp_path / "corpus" / f"{i}").write_text(f"document {i} " * (1 + i % 3))
    return TextTask(corpus=str(tmp_path / "corpus"), vocab_size=256, length=40, pack=True)


@pytest.fixture
def config(small, task):
    return small.replace(task=task, model=MODEL, steps=6, accumulate=2)


def losses_alone(model, batch):
    """Return the summed loss of every document in a forward pass of its own, and the number of
    targets.
    """
    inputs, targets, starts = map(
        torch.from_numpy, (batch.inputs, batch.targets, batch.document_starts)
    )
    logits = alone(model, inputs, starts).flatten(0, 1)
    loss = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return loss, int((targets != IGNORE).sum())


@pytest.mark.slow
def test_training_and_its_evaluations_read_each_document_alone(config, task, tmp_path):
    model = Transformer(MODEL, seed=1)
    trained = SingleModel(model, config, torch.device("cpu"))
    loss, count = losses_alone(
        model, draw(task, config.seed, "train", 3, config.batch_size, packed=True)
    )
    pieces = microbatches(config, 3)
    assert {piece.total for piece in pieces} == {count}
    torch.testing.assert_close(sum(trained.summed_losses(piece) for piece in pieces)[0], loss)
    run = train(config, tmp_path)
    with torch.no_grad():
        loss, count = losses_alone(
            run.model(), draw(task, EVAL_SEED, "eval", 0, config.eval_rows, packed=True)
        )
    assert run.metrics["eval_loss"].iloc[-1] == pytest.approx(float(loss) / count, rel=1e-5)


def test_what_would_read_packed_documents_as_one_sequence_refuses(config, task, tmp_path):
    with pytest.raises(ConfigError, match=r"RunConfig.compile is True, but packed documents"):
        train(config.replace(compile=True), tmp_path)
    with pytest.raises(ConfigError, match="TextTask packs documents, which stacked runs"):
        train_ensemble([config, config.replace(seed=1)], tmp_path, stack=2)
    with pytest.raises(ConfigError, match=r"ModelConfig.positional is 'learned'"):
        train(config.replace(model=MODEL.replace(positional="learned")), tmp_path)
    with pytest.raises(ConfigError, match="several documents in a sequence"):
        ablate_heads(Transformer(MODEL), draw(task, 0, "train", 0, 2, packed=True), [(0, 0)])
