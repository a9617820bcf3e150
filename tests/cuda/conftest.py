"""Tests on a GPU. Cheap ones run on the CPU too, with the same code, so that they stay correct.

    python -m pytest tests/cuda -m slow -k device_cuda

More thorough tests of the same features on the CPU are in the folders that mirror the package.
"""

import pytest
import torch

CUDA = pytest.param(
    "cuda",
    id="device_cuda",
    marks=[
        pytest.mark.skipif(
            not torch.cuda.is_available(), reason="needs a GPU: torch.cuda.is_available() is False"
        ),
        pytest.mark.filterwarnings(
            "default"
        ),  # drivers and kernels warn about speed: show it, but do not fail
    ],
)


@pytest.fixture(params=[pytest.param("cpu", id="device_cpu"), CUDA])
def device(request):
    return torch.device(request.param)


@pytest.fixture(params=[CUDA])
def gpu(request):
    """The GPU; such tests do not run on a CPU."""
    return torch.device(request.param)


@pytest.fixture
def short(small):
    """Ten steps of a model with d_head=16, wide enough for a GPU's fused kernels."""
    return small.replace(steps=10, model=small.model.replace(d_model=32, d_head=16, d_mlp=86))
