"""Sharpness against the whole Hessian, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from figures.flatness.study import FLATNESS, largest_eigenvalue, loss_and_sharpness
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.study.claim import judged
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


def verdicts(at_start, at_end):
    """Vanilla is at 3 nats where KV shifting is at 3 and on its way to 2."""
    rows = []
    for seed in FLATNESS.seeds:
        for variant, losses in (("vanilla", (6, 4, 3)), ("KV shifting", (6, 3, 2))):
            factor = (1 + 0.01 * seed) if variant == "vanilla" else 1.0
            ratios = (1.0, 1.0, 1.0) if variant == "vanilla" else (at_start, at_end, 50.0)
            checkpoints = {f"loss_{i}": loss for i, loss in enumerate(losses)}
            checkpoints |= {f"sharpness_{i}": factor * ratio for i, ratio in enumerate(ratios)}
            rows.append(
                {"kind": "run", "variant": variant, "seed": seed, "lr": 8e-3, **checkpoints}
            )
    return [claim.verdict for claim in judged(FLATNESS.claims(pd.DataFrame(rows), "laptop"))]


def test_verdicts_can_come_out_either_way_and_compare_at_an_equal_loss():
    assert verdicts(0.5, 0.5) == ["holds", "holds"]
    assert verdicts(2.0, 0.5) == ["fails", "holds"]
    assert verdicts(0.5, 2.0) == ["holds", "fails"]
    assert verdicts(1.04, 1.04) == ["undecided", "undecided"]
