"""The study of the partial key offset: its arms, and the ablation of parts of keys by hand."""

import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.claims.claim import judged
from ihlab.claims.labels import K_ONLY, KV
from ihlab.claims.toy_settings import FAST, HOPS, INDUCTION1
from ihlab.model.partial_offset import offset
from ihlab.studies.key_offset import (
    CHANNELS,
    CONTROL,
    K_HALF,
    KEY_OFFSET,
    OFFSET,
    PARTS,
    VARIANTS,
    ablation,
    config,
    slow,
)
from tests.comparisons import AROUND, cell


@pytest.mark.parametrize("setting", [INDUCTION1, FAST, HOPS])
def test_the_half_that_is_left_unrotated_is_the_offsets(setting):
    configs = {variant: config({"variant": variant, "setting": setting}, "laptop") for variant in VARIANTS}
    arms = {variant: Transformer(run.model) for variant, run in configs.items()}
    q = torch.randn(2, 7, 2, 8)
    rotated = {variant: model.layers[0].attn.rotary(q, slice(0, 7)) for variant, model in arms.items()}
    for variant in (K_HALF, CONTROL):
        assert torch.allclose(rotated[variant], rotated[OFFSET])
    assert torch.equal(rotated[OFFSET][..., slow(8)], q[..., slow(8)])
    for variant in (K_ONLY, KV, CHANNELS):
        assert torch.allclose(rotated[variant][..., ~slow(8)], rotated[OFFSET][..., ~slow(8)])
    turned = (rotated[K_ONLY] - q)[..., slow(8)].abs().max()
    assert turned > 1 if setting == FAST else turned < 0.1


def test_slow_channels_are_those_that_the_offset_shifts():
    assert torch.equal(offset(torch.zeros(8), torch.ones(8)).bool(), slow(8))


@pytest.mark.parametrize("variant", [K_ONLY, KV, CHANNELS, OFFSET])
def test_an_ablated_part_of_a_key_is_its_mean_and_the_rest_is_kept(variant):
    model = Transformer(ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=9, n_ctx=12, **VARIANTS[variant]))
    tokens = torch.randint(9, (3, 12))
    _, cache = model.run_with_cache(tokens)
    k = cache["blocks.0.attn.hook_k"]
    if variant == OFFSET:
        own, previous = k * ~slow(8), k * slow(8)
    else:
        raw, taps = cache["blocks.0.attn.hook_k_raw"], model.blocks[0].attn.alpha.detach()
        own = raw * (taps[:, 0] if variant == CHANNELS else taps[:, 0, None])
        before = torch.cat([torch.zeros(3, 1, 2, 8), raw[:, :-1]], dim=1)
        previous = before * (taps[:, 1] if variant == CHANNELS else taps[:, 1, None])
    assert torch.allclose(own + previous, k, atol=1e-6)
    parts = {"own": own, "previous": previous, "fast": k * ~slow(8), "slow": k * slow(8)}
    for part in PARTS:
        found = []
        note = ("blocks.0.attn.hook_k", lambda key, hook, found=found: found.append(key))
        with model.hooks(fwd_hooks=[*ablation(model, part), note]):
            model(tokens)
            model(tokens[:2])  # a second batch is ablated alone
        gone = parts[part]
        assert torch.allclose(found[0], k - gone + gone.mean(dim=(0, 1)), atol=1e-6)
        assert torch.allclose(found[1], (k - gone)[:2] + gone[:2].mean(dim=(0, 1)), atol=1e-6)


def table(*, fast_offset, own, slow_part, taps):
    """A planted table: the offset's steps under fast rotation, accuracies without parts, and a difference of taps."""
    cells = []
    for variant, setting in (each.values() for each in KEY_OFFSET.cells):
        taken = AROUND * (fast_offset if setting == FAST and variant in (OFFSET, K_HALF) else 1.0)
        rows = cell(variant, setting, taken, 0.99)
        noise = 0.001 * (rows["seed"] % 3)
        rows["whole"] = 0.99 + noise
        rows["without_own"], rows["without_fast"] = own + 2 * noise, own - noise
        rows["without_previous"], rows["without_slow"] = slow_part + 3 * noise, slow_part - 2 * noise
        rows["taps_fast"], rows["taps_slow"] = 0.4 + noise, 0.4 + taps - noise
        cells.append(rows)
    return pd.concat(cells)


def verdicts(**planted):
    return [claim.verdict for claim in judged(KEY_OFFSET.claims(table(**planted), "laptop"))]


def test_verdicts_come_out_either_way():
    assert verdicts(fast_offset=0.5, own=0.98, slow_part=0.05, taps=0.4) == ["holds"] * 12
    told = verdicts(fast_offset=1.0, own=0.05, slow_part=0.98, taps=0.0)
    assert told == ["holds", "fails", "holds", "holds", *["fails"] * 8]
