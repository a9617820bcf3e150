"""Settings of torch and NumPy on which numbers depend, kept apart from those of the calling code."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import _get_current_function_mode_stack, _pop_mode_temporarily

from tasks.config import require

KERNELS: list[SDPBackend] = [
    kernel for kernel in SDPBackend.__members__.values() if kernel is not SDPBackend.ERROR
]


@contextmanager
def own_settings() -> Iterator[None]:
    """Give torch and NumPy the settings of a new process, and restore the caller's afterwards.

    They are float32, the CPU as default device, no inference mode, no autocast
    (`RunConfig.precision` turns it on), matrix products in full float32 precision, every attention
    kernel, no `TorchFunctionMode`, no saved-tensor hooks, no anomaly detection and NumPy's default
    handling of overflow. What is measured or trained is then determined by its arguments. The
    caller's gradient mode, deterministic algorithms and number of threads stay. So does a mode that
    watches torch's operations, such as `FlopCounterMode`. Threads and such modes may change
    rounding.

    Raises `ConfigError` inside a transform or mode of torch in which new tensors have no values of
    their own.
    """
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    require(
        not transformed,
        "A transform of torch.func is running (such as vmap or grad): leave it first.",
    )
    with usual_tensors(), ExitStack() as settings:
        plain = type(torch.empty(0)) is torch.Tensor
        require(
            plain,
            "A mode of torch in which tensors have no values is on (such as FakeTensorMode): leave it first.",
        )
        _full_precision(settings)
        for of in ("cpu", "cuda"):
            if torch.is_autocast_enabled(of):
                settings.enter_context(torch.autocast(of, enabled=False))
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            settings.enter_context(
                saved_tensors_hooks(lambda x: x, lambda x: x)
            )  # only the innermost hooks are called
        settings.enter_context(torch.autograd.set_detect_anomaly(False))
        settings.enter_context(sdpa_kernel(KERNELS))
        settings.enter_context(
            np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
        )
        yield


@contextmanager
def usual_tensors() -> Iterator[None]:
    """Make new tensors float32, on the CPU and outside inference mode, and restore the caller's
    settings afterwards.

    Models are built in this context. Unlike `own_settings`, it accepts a `FakeTensorMode`, with
    tensors without values.
    """
    with ExitStack() as settings:
        for _ in _get_current_function_mode_stack():  # a default device is one of them
            settings.enter_context(_pop_mode_temporarily())
        settings.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        gradients = torch.is_grad_enabled()
        settings.enter_context(torch.inference_mode(False))
        settings.enter_context(torch.set_grad_enabled(gradients))
        yield


def _full_precision(settings: ExitStack) -> None:
    backends: tuple[Any, ...] = (
        torch.backends.cuda.matmul,
        getattr(torch.backends.mkldnn, "matmul", None),
    )
    for matmul in (each for each in backends if hasattr(each, "fp32_precision")):
        settings.callback(setattr, matmul, "fp32_precision", matmul.fp32_precision)
        matmul.fp32_precision = "ieee"
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch 2.8
        settings.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
