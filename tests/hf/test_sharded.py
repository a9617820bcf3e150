"""FSDP: a shifted model is sharded as the plain one is, although its taps stay in float32
elsewhere.
"""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from ihlab.hf import KVShiftForCausalLM, add_shift
from ihlab.hf.conformance.shifted import taps_of
from tests.hf.conftest import plain

IDS = torch.randint(1, 50, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def stored(model, folder):
    model.save_pretrained(folder)
    return KVShiftForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


MADE = {
    "bfloat16": lambda model, _: add_shift(model.to(torch.bfloat16)),
    "cast later": lambda model, _: add_shift(model).to(torch.bfloat16).to("cpu"),
    "cast back": lambda model, _: add_shift(model).to(torch.bfloat16).float(),
    "float32": lambda model, _: add_shift(model),
    "stored": lambda model, folder: stored(add_shift(model), folder),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    "policy", [MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16)]
)
def test_a_sharded_model_has_the_same_logits_and_trains_its_taps(name, policy, mesh, tmp_path):
    model = MADE[name](plain("llama"), tmp_path / "saved")
    assert {taps.dtype for taps in taps_of(model)} == {torch.float32}
    with torch.no_grad():
        for taps in taps_of(model):
            taps.copy_(torch.tensor([0.75, 0.5]))  # exact in half precision
    whole = copy.deepcopy(model)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    output = model(IDS, labels=IDS)
    if policy.param_dtype is None:
        torch.testing.assert_close(output.logits, whole(IDS).logits, rtol=0, atol=0)
    output.loss.backward()
    optimizer.step()
    taps = [taps.full_tensor() for taps in taps_of(model)]
    assert {x.dtype for x in taps} == {model.lm_head.weight.dtype}
    assert all((x.float() - torch.tensor([0.75, 0.5])).abs().max() > 0 for x in taps)
    model(IDS, labels=IDS).loss.backward()
