"""Variants of the shift in training: resumed, stacked, projected, clamped, and their columns of the
metrics.
"""

import pandas as pd
import pytest
import torch

from ihlab import Transformer, train
from ihlab.training.checkpoint import load
from ihlab.training.clamp import Clamp
from ihlab.training.clamp_hooks import impose, install
from ihlab.training.train import train_ensemble
from tasks import ConfigError

CASES = {
    "queries too": {"attention": "qkv_shift", "n_key_value_heads": 1},
    "sum to 1": {"attention": "kv_sum1", "shift_window": 3},
    "projected, tied": {"attention": "kv_project", "tied_embeddings": True},
    "stream shifted, convolutions": {
        "attention": "vanilla",
        "stream_shift": "added",
        "canon": "B",
    },
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def config(request, small):
    """A run of each variant, with a learning rate that moves its weights far."""
    return small.replace(
        model=small.model.replace(**request.param), lr=3e-2, steps=12, eval_every=6, checkpoints=3
    )


def test_a_run_goes_on_bit_for_bit_and_members_follow_it(config, tmp_path):
    whole = train(config, tmp_path / "whole")
    again = train(config, tmp_path / "again")
    for path in (
        "done.json",
        "checkpoints/step-12.safetensors",
        "checkpoints/step-12.optimizer.safetensors",
    ):
        (again.folder / path).unlink()
    resumed = train(config, tmp_path / "again")
    pd.testing.assert_frame_equal(resumed.metrics, whole.metrics, check_exact=True)
    for name, weight in load(whole.checkpoint_path(12)).items():
        assert torch.equal(load(resumed.checkpoint_path(12))[name], weight), name
    other = config.replace(seed=1)
    alone = train(other, tmp_path / "alone")
    for member, solo in zip(
        train_ensemble([config, other], tmp_path / "stack", stack=2), (whole, alone), strict=True
    ):
        pd.testing.assert_frame_equal(member.metrics, solo.metrics, atol=1e-4, rtol=0)


def test_metrics_hold_what_the_forward_pass_mixes_with(config, tmp_path):
    run = train(config, tmp_path)
    attn, last = run.model().layers[0].attn, run.metrics.iloc[-1]
    for name in ("alpha", "beta", "gamma"):
        columns = [column for column in run.metrics if column.startswith(name)]
        learned = name in config.model.learned_shifts
        heads = config.model.n_heads if name == "gamma" else config.model.kv_heads
        assert len(columns) == learned * config.model.n_layers * heads * config.model.shift_window
        if learned:
            weight = getattr(attn, name).detach()
            own = weight[1 % heads, 0].item()
            assert last[f"{name}1_0.{1 % heads}"] == pytest.approx(own, abs=1e-6)


@pytest.mark.parametrize("stacked", [False, True])
def test_projected_weights_stay_between_0_and_1_and_reach_the_ends(small, tmp_path, stacked):
    config = small.replace(model=small.model.replace(attention="kv_project"), lr=0.2, warmup=0)
    # Two rates, so that a member takes a part of the common step.
    run = (
        train_ensemble([config.replace(lr=0.1), config], tmp_path, stack=2)[1]
        if stacked
        else train(config, tmp_path)
    )
    rows = run.metrics.filter(regex=r"^(alpha|beta)")
    assert rows.min().min() == 0
    assert rows.max().max() == 1


@pytest.mark.parametrize("attention", ["kv_shift", "kv_gate", "kv_sum1", "kv_clip"])
def test_a_clamped_column_is_read_and_gets_no_gradient(small, attention):
    clamp = Clamp(what="alpha", layer=0, head=1, column=1, value=0.25)
    cfg = small.model.replace(attention=attention)
    clamp.check(cfg)
    model = Transformer(cfg)
    impose(model, {}, [clamp])
    install(model, [clamp])
    _, cache = model.run_with_cache(torch.arange(12)[None])
    assert cache["blocks.0.attn.hook_alpha"][1, 1] == pytest.approx(0.25, abs=1e-6)
    torch.testing.assert_close(cache["blocks.0.attn.hook_alpha"], model.layers[0].attn.alpha)
    if attention in ("kv_gate", "kv_sum1"):
        assert cache["blocks.0.attn.hook_alpha"][1, 0] == pytest.approx(0.75, abs=1e-6)
    model(torch.arange(12)[None]).square().sum().backward()
    gradient = model.layers[0].attn.key_shift.weight.grad
    held = gradient[1] if gradient.shape[1] == 1 else gradient[1, 1]
    assert (held == 0).all()
    assert (gradient[0] != 0).all()


@pytest.mark.parametrize(
    ("model", "clamp", "sentence"),
    [
        ({"attention": "k_shift"}, {"what": "beta"}, "Clamp.what is 'beta', but a k_shift"),
        ({"attention": "kv_gate"}, {"value": 0.5}, "Clamp.column is None, .* sum to 1"),
        ({"attention": "kv_gate"}, {"column": 0, "value": 1.0}, "Clamp.value is 1.0, .* to 0.999"),
    ],
)
def test_clamps_that_a_variant_cannot_hold_are_refused(small, model, clamp, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Clamp(layer=0, **{"what": "alpha"} | clamp).check(small.model.replace(**model))
