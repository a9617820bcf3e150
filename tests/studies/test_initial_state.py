"""The state before training: numbers counted one by one, what independence implies, verdicts on made-up tables."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.claims.claim import judged
from ihlab.claims.labels import KV, VANILLA
from ihlab.studies.initial_state import (
    ARMS,
    ASKED,
    EXPECTED,
    LAYERS,
    MEASURED,
    RUNS,
    SAME,
    UNIT,
    InitialState,
    ratios,
    state,
)
from tasks import IGNORE, Batch

CFG = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=20, n_ctx=8)


def batch(rows=6, length=8, vocab=20):
    """Independent tokens; the second half of each sequence is scored."""
    tokens = np.random.default_rng(0).integers(vocab, size=(rows, length + 1))
    targets = tokens[:, 1:].copy()
    targets[:, : length // 2] = IGNORE
    return Batch(tokens[:, :-1], targets)


def own_weight(model, alpha1, beta1):
    for block in model.layers:
        block.attn.key_shift.restart(alpha1)
        block.attn.value_shift.restart(beta1)
    return model


def test_a_shift_by_nothing_is_vanilla_to_the_last_bit():
    vanilla = state(Transformer(CFG, 0), batch())
    shifted = Transformer(CFG.replace(attention="kv_shift"), 0)
    assert state(own_weight(shifted, 1.0, 1.0), batch()) == vanilla
    halves = state(own_weight(shifted, 0.5, 0.5), batch())
    assert all(halves[column] != vanilla[column] for column in MEASURED)


def test_variances_and_loss_one_by_one():
    model, read = Transformer(CFG.replace(attention="kv_shift"), 0), batch()
    logits, cache = model.run_with_cache(torch.from_numpy(read.inputs))
    found = state(model, read)
    surprise = -logits.log_softmax(dim=-1)
    scored = [(b, t) for b in range(6) for t in range(8) if read.targets[b, t] != IGNORE]
    assert found["loss"] == pytest.approx(np.mean([surprise[b, t, read.targets[b, t]].item() for b, t in scored]))
    for column, hook in (("keys", "k"), ("values", "v"), ("outputs", "z")):
        vectors = cache[f"blocks.1.attn.hook_{hook}"].numpy().astype(float)
        each = [np.var(vectors[:, :, head, i], ddof=1) for head in range(2) for i in range(8)]
        assert found[column] == pytest.approx(np.mean(each), rel=1e-5)
    scores = cache["blocks.1.attn.hook_attn_scores"].numpy().astype(float)
    visible = [[scores[b, head, q, k] for b in range(6) for q in range(8) for k in range(q + 1)] for head in range(2)]
    assert found["scores"] == pytest.approx(np.mean([np.var(each, ddof=1) for each in visible]), rel=1e-5)


def test_gradient_norms_are_slopes_of_the_loss():
    model, read = Transformer(CFG.replace(attention="kv_shift"), 0).double(), batch()
    found, attention = state(model, read), model.layers[1].attn
    for column, weight in (("key_gradient", attention.k_proj.weight), ("value_gradient", attention.v_proj.weight)):
        slopes = torch.zeros_like(weight)
        for at in np.ndindex(*weight.shape):
            losses = []
            for step in (1e-5, -2e-5):
                weight.data[at] += step
                losses.append(state(model, read)["loss"])
            weight.data[at] += 1e-5
            slopes[at] = (losses[0] - losses[1]) / 2e-5
        assert found[column] == pytest.approx(slopes.norm().item(), rel=1e-6)


def test_independent_tokens_keep_the_sum_of_squares_of_their_variance():
    """alpha1^2 + alpha2^2 for keys, beta1^2 + beta2^2 for values, on long sequences of independent tokens."""
    cfg = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=500, n_ctx=64)
    read = batch(rows=64, length=64, vocab=500)
    vanilla = state(Transformer(cfg, 0), read)
    for attention in ("kv_shift", "kv_frozen_unit"):
        model = Transformer(cfg.replace(attention=attention), 0)
        found, attn = state(model, read), model.layers[0].attn
        for column, shift in (("keys", attn.key_shift), ("values", attn.value_shift)):
            squares = shift.weights().detach().square().sum(dim=1).mean().item()
            assert found[column] / vanilla[column] == pytest.approx(squares, rel=0.05)
            assert attention == "kv_shift" or squares == pytest.approx(1)


def test_the_expected_variance_is_the_mean_over_the_start():
    alpha1 = (np.arange(100_000) + 0.5) / 100_000
    assert pytest.approx(np.mean(alpha1**2 + (1 - alpha1) ** 2), abs=1e-9) == EXPECTED


def table(ratio_of):
    """A laptop table: vanilla's numbers differ by seed, and an arm's are these times its ratio, give or take 2%."""
    rng, rows = np.random.default_rng(0), []
    for data in RUNS:
        for layers in LAYERS:
            for seed in range(64):
                size = rng.uniform(0.5, 2, size=len(MEASURED))
                for arm in ARMS:
                    numbers = size * ratio_of[arm] * (1 if arm == VANILLA else 1 + 0.02 * rng.normal(size=len(size)))
                    facts = {"data": data, "layers": layers, "arm": arm, "seed": seed}
                    rows.append({**facts, **dict(zip(MEASURED, numbers, strict=True))})
    return pd.DataFrame(rows)


def test_verdicts_can_come_out_either_way():
    data = table({VANILLA: 1.0, KV: 0.67, UNIT: 1.02})
    claims = judged(InitialState().claims(data, "laptop"))
    each = len(ASKED) * len(RUNS)
    assert [claim.verdict for claim in claims] == ["fails"] * (1 + each) + ["holds"] * each
    assert [claim.of_paper for claim in claims] == [True] * (1 + each) + [False] * each
    alike = judged(InitialState().claims(table({VANILLA: 1.0, KV: 1.0, UNIT: SAME}), "laptop"))
    assert [claim.verdict for claim in alike] == ["fails"] + ["holds"] * each + ["undecided"] * each  # algebra stays


def test_models_are_paired_by_seed():
    data = table({VANILLA: 1.0, KV: 0.5, UNIT: 1.0}).sample(frac=1, random_state=0)
    found = ratios(data, KV, "text", 1)
    assert len(found) == 64
    assert found["keys"].mean() == pytest.approx(0.5, abs=0.01)
    assert found.std().max() < 0.02


def test_gather_measures_every_model_once():
    data = InitialState().gather([], "smoke")
    assert not data.duplicated(["data", "layers", "arm", "seed"]).any()
    assert len(data) == len(RUNS) * len(LAYERS) * len(ARMS) * 2
    assert all(math.isfinite(x) and x > 0 for x in data[list(MEASURED)].to_numpy().ravel())
    assert not data.duplicated(list(MEASURED)).any()


def test_the_picture_shows_the_mean_ratios():
    data = table({VANILLA: 1.0, KV: 0.67, UNIT: 1.02})
    left, _ = InitialState().draw(data, "laptop").axes
    means = [bars.lines[0].get_xdata() for bars in left.containers]
    assert np.mean(means[0]) == pytest.approx(0.67, abs=0.01)
    assert np.mean(means[2]) == pytest.approx(1.02, abs=0.01)
    summary = InitialState().summary(data, "laptop").set_index("ratio to vanilla")
    assert summary.loc["variance of keys"].tolist() == pytest.approx([0.67, 0.67, 1.02, 1.02], abs=0.01)
