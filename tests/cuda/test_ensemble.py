"""Stacked members on the device are their solo runs: fused attention and vmap meet only there."""

import pytest
import torch

from ihlab import train
from ihlab.model.attend import _unfused, fused
from ihlab.training.ensemble import seeds
from ihlab.training.train import train_ensemble

pytestmark = pytest.mark.slow

MODELS = {
    "rope": {},
    "alibi and strict": {"positional": "alibi", "mask": "strict", "n_key_value_heads": 1},
}


def assert_members_are_solo_runs(config, device, root, tolerance):
    configs = seeds(config, 3)
    for run, each in zip(
        train_ensemble(configs, root / "together", str(device), stack=3), configs, strict=True
    ):
        solo = train(each, root / "alone", str(device))
        columns = ["train_loss", "eval_loss"]
        ours, theirs = (torch.tensor(r.metrics[columns].to_numpy()) for r in (run, solo))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance, equal_nan=True)
        assert run.done["ensemble"] == 3


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_members_are_their_solo_runs(short, device, tmp_path, model, precision):
    """In bf16 fused attention is another kernel."""
    if device.type == "cpu" and precision == "bf16":
        pytest.skip("the CPU's kernels do not depend on it: tests/training/test_ensemble.py")
    config = short.replace(model=short.model.replace(**MODELS[model]), precision=precision)
    assert_members_are_solo_runs(config, device, tmp_path, 1e-4 if precision == "fp32" else 0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_compiled_members_are_their_solo_runs(short, gpu, tmp_path, precision):
    """Two layers: all positions of the first attend, and only the scored ones of the second."""
    config = short.replace(model=short.model.replace(n_layers=2), compile=True, precision=precision)
    assert_members_are_solo_runs(config, gpu, tmp_path, 1e-3 if precision == "fp32" else 0.05)


@pytest.mark.parametrize("bias", ["none", "strict"])
def test_unfused_attention_is_the_fused_one(device, bias):
    """A GPU's stacks use it. Here each sequence is a member of its own."""
    q, k, v = (torch.randn(3, 2, 8, heads, 16, device=device) for heads in (4, 2, 2))
    mask = torch.zeros(8, 8, device=device).masked_fill(
        torch.ones(8, 8, device=device).triu().bool(), -torch.inf
    )
    given = None if bias == "none" else mask[None, None]
    together = torch.vmap(lambda *member: _unfused(*member, given, 0.0))(q, k, v)
    alone = torch.stack([fused(*member, given, 0.0) for member in zip(q, k, v, strict=True)])
    torch.testing.assert_close(
        together[:, :, 1:], alone[:, :, 1:], rtol=0, atol=1e-5
    )  # strict: the first sees nothing
