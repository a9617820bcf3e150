"""Signs are a gauge, exactly: a model and its mirror image train alike, to the last bit.

(alpha, W_K, b_K) -> -(alpha, W_K, b_K) and (beta, W_V, b_V) -> -(beta, W_V, b_V), for any of the key/value heads, leave
shifted keys and values as they are: a product rounds alike for (a, b) and (-a, -b). The gradients of what is mirrored
change sign, which neither their norm nor the sizes of AdamW's steps depend on. So the sign of a trained head's alpha or
beta has no meaning.

Another c in (c alpha, W_K / c) leaves the function unchanged but not its training: the size of AdamW's steps does not
follow the size of the parameters.
"""

import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, RunConfig, train
from ihlab.interp import shift_report
from ihlab.measure.batches import draw
from ihlab.measure.loss import summed_loss
from ihlab.training import loop
from ihlab.training.loop import initial_model, learning_rate, make_optimizer, microbatches
from tasks import InductionTask

VARIANTS = {
    "full heads": {},
    "grouped queries, window 3, two layers, one without residual": {
        "n_key_value_heads": 2, "shift_window": 3, "n_layers": 2, "residual": (True, False),
    },
    "the theorems' block: no positions, strict mask, no residual": {
        "positional": "none", "mask": "strict", "residual": False, "norm": "none", "mlp": "none",
    },
}  # fmt: skip

ALL, NONE, FIRST, LAST = slice(None), slice(0), slice(1), slice(-1, None)

MIRRORS = {"alpha": (ALL, NONE), "one head's alpha and another's beta": (FIRST, LAST)}
"""The key/value heads whose alpha and W_K change sign, and those whose beta and W_V do."""


def config_of(**model):
    sizes = {"n_layers": 1, "d_model": 16, "n_heads": 4, "d_vocab": 40, "n_ctx": 12, "attention": "kv_shift"}
    return RunConfig(
        task=InductionTask(vocab_size=40, length=12), model=ModelConfig(**{**sizes, **model}), steps=40, batch_size=8,
        lr=1e-2, warmup=5, schedule="cosine", weight_decay=0.3, clip=0.5,
    )  # fmt: skip


@torch.no_grad()
def rescaled(model, keys=NONE, values=NONE, c=-1.0):
    """Make alpha of the heads `keys` c alpha and W_K, b_K W_K / c, b_K / c; likewise beta, W_V, b_V of `values`.

    In place, in every layer. c = -1 gives the mirror image; applied twice it gives the model back.
    """
    for layer in model.layers:
        attn = layer.attn
        for heads, shift, weight, bias in (
            (keys, attn.alpha, attn.W_K, attn.b_K),
            (values, attn.beta, attn.W_V, attn.b_V),
        ):
            shift[heads] *= c
            weight[heads] /= c
            bias[heads] /= c
    return model


def trained(model, config, rows):
    """Train the model in place as `train` does, and return the losses and the gradient norms of all steps."""
    optimizer = make_optimizer(model, config)
    losses, norms = [], []
    for step, scored in enumerate(rows):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        loss = summed_loss(model, *scored.tensors) / scored.total
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses), torch.stack(norms)


def rows_of(config):
    return [batch for step in range(config.steps) for batch in microbatches(config, step)]


@torch.no_grad()
def logits_of(model, config):
    return model(torch.from_numpy(draw(config.task, config.seed, "eval", 0, 16).inputs))


def assert_same_parameters(model, other):
    theirs = dict(other.named_parameters())
    differ = [name for name, ours in model.named_parameters() if not torch.equal(ours, theirs[name])]
    assert differ == []


def gauge_free(model):
    report = shift_report(model)
    return report[[name for name in report.columns if "_" in name and not name.endswith("_raw")]]


@pytest.fixture(scope="module", params=VARIANTS)
def plain(request):
    """A variant trained as it is: config, rows of every step, logits before and after, model, losses and norms."""
    config = config_of(**VARIANTS[request.param])
    rows, model = rows_of(config), initial_model(config)
    before = logits_of(model, config)
    losses, norms = trained(model, config, rows)
    return config, rows, model, (before, logits_of(model, config)), (losses, norms)


@pytest.mark.parametrize("heads", MIRRORS.values(), ids=MIRRORS)
def test_a_mirror_image_trains_as_the_model_to_the_last_bit(plain, heads):
    config, rows, model, (before, after), (losses, norms) = plain
    image = rescaled(initial_model(config), *heads)
    assert torch.equal(logits_of(image, config), before)
    its_losses, its_norms = trained(image, config, rows)
    assert torch.equal(its_losses, losses)
    assert torch.equal(its_norms, norms)
    assert torch.equal(logits_of(image, config), after)
    pd.testing.assert_frame_equal(gauge_free(image), gauge_free(model), check_exact=True)
    assert_same_parameters(rescaled(image, *heads), model)


def test_the_training_that_is_compared_changes_the_model_and_clips(plain):
    config, *_, (before, after), (_, norms) = plain
    assert (norms > config.clip).any()
    assert not torch.allclose(before, after, atol=0.1)


def test_the_run_of_a_mirror_image_has_the_metrics_of_the_models(small, tmp_path, monkeypatch):
    """By `train` itself, with its evaluations: losses, accuracies and head scores."""
    model = small.model.replace(n_layers=2, dropout=0.3)
    config = small.replace(model=model, precision="bf16", accumulate=2, steps=12, eval_every=12, checkpoints=2)
    metrics = train(config, tmp_path / "model").metrics
    monkeypatch.setattr(loop, "initial_model", lambda config: rescaled(initial_model(config), ALL, ALL))
    image = train(config, tmp_path / "image").metrics
    signed = [name for name in metrics.columns if name.startswith(("alpha", "beta"))]
    pd.testing.assert_frame_equal(image.drop(columns=signed), metrics.drop(columns=signed), check_exact=True)
    pd.testing.assert_frame_equal(image[signed], -metrics[signed], check_exact=True)
