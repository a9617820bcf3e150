"""The loss of scored positions equals the loss of all logits with the others masked."""

import pytest
import torch
from torch.nn import functional

from ihlab import ModelConfig, Transformer
from ihlab.measure.batches import draw
from ihlab.measure.gathered import training_batch
from ihlab.measure.loss import summed_loss
from tasks import IGNORE, InductionTask


@pytest.mark.parametrize("score", ["all", "first", "tokens"])
def test_loss_and_gradients_equal_the_masked_full_loss(score):
    task = InductionTask(vocab_size=96, length=16, score=score)
    model = Transformer(
        ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=96, n_ctx=16, attention="kv_shift")
    )
    batch = draw(task, 0, "train", 0, 8)
    kept = training_batch(batch.inputs, batch.targets)

    loss = summed_loss(model, *kept.tensors)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}

    model.zero_grad()
    targets = torch.from_numpy(batch.targets.copy())
    full = functional.cross_entropy(
        model(kept.tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )
    full.backward()
    torch.testing.assert_close(loss, full, rtol=1e-5, atol=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, rtol=1e-4, atol=1e-4)


def test_half_precision_does_not_round_the_sum():
    """Without a residual stream the last layer's output is in bfloat16, with 8 bits."""
    cfg = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=300, n_ctx=64, residual=False)
    model = Transformer(cfg)
    batch = draw(InductionTask(vocab_size=300, length=64, score="tokens"), 0, "train", 0, 64)
    kept = training_batch(batch.inputs, batch.targets)
    with torch.autocast("cpu", torch.bfloat16):
        half = summed_loss(model, *kept.tensors)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(summed_loss(model, *kept.tensors).item(), rel=1e-4)
