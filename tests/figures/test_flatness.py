"""Sharpness against the whole Hessian."""

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from figures.flatness.study import largest_eigenvalue, loss_and_sharpness
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks import RepeatTask


def test_sharpness_is_the_largest_eigenvalue_of_the_whole_hessian():
    task = RepeatTask(vocab_size=8, length=9)
    batch = task.batch(3, np.random.default_rng(0))
    model = Transformer(
        ModelConfig(n_layers=1, d_model=4, n_heads=1, d_vocab=8, n_ctx=9, attention="kv_shift"), 0
    )
    names, weights = zip(*model.named_parameters(), strict=True)

    def loss(flat):
        parts = flat.split([weight.numel() for weight in weights])
        of = {
            name: part.view_as(weight)
            for name, part, weight in zip(names, parts, weights, strict=True)
        }
        logits = functional_call(model, of, (torch.from_numpy(batch.inputs),))
        return cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).flatten())

    flat = torch.cat([weight.detach().flatten() for weight in weights])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        whole = torch.autograd.functional.hessian(loss, flat)
        expected = float(loss(flat)), float(torch.linalg.eigvalsh(whole)[-1])
    assert loss_and_sharpness(model, batch) == pytest.approx(expected, rel=1e-3)


def test_the_largest_eigenvalue_is_not_the_largest_by_size():
    matrix = torch.diag(torch.tensor([-9.0, 1.0, 2.0, 5.0]))
    assert largest_eigenvalue(lambda along: matrix @ along, 4) == pytest.approx(5.0, rel=1e-4)
