"""Tests of a GPU. Where they are cheap they run on the CPU too, so that they cannot rot: one body for both.

    python -m pytest tests/cuda -m slow -k device_cuda

The CPU's tests of the same things, which go further, stand where the tree is mirrored.
"""

import pytest
import torch

CUDA = pytest.param(
    "cuda",
    id="device_cuda",
    marks=[
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: torch.cuda.is_available() is False"),
        pytest.mark.filterwarnings("default"),  # drivers and kernels give advice on speed: shown, but no failure
    ],
)


@pytest.fixture(params=[pytest.param("cpu", id="device_cpu"), CUDA])
def device(request):
    return torch.device(request.param)


@pytest.fixture(params=[CUDA])
def gpu(request):
    """Only a GPU."""
    return torch.device(request.param)


@pytest.fixture
def short(small):
    """Ten steps of a model whose heads are wide enough for a GPU's fused kernels: 16."""
    return small.replace(steps=10, model=small.model.replace(d_model=32, d_head=16, d_mlp=86))
