"""Settings of torch that a run depends on, kept apart from those of the calling code."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from tasks.config import require


@contextmanager
def own_settings() -> Iterator[None]:
    """Give torch the settings that a run needs, and restore the caller's afterwards.

    They are float32, the CPU as default device, gradients, no inference mode, no autocast (`RunConfig.precision` turns
    it on) and products in full float32 precision. A run is then determined by its config. The caller's deterministic
    algorithms stay on. Raises `ConfigError` inside a mode of torch in which new tensors have no values.
    """
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    with ExitStack() as settings:
        settings.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        if precision != "highest":
            settings.callback(torch.set_float32_matmul_precision, precision)
            torch.set_float32_matmul_precision("highest")
        for of in ("cpu", "cuda"):
            if torch.is_autocast_enabled(of):
                settings.enter_context(torch.autocast(of, enabled=False))
        settings.enter_context(torch.inference_mode(False))
        settings.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":  # a device context slows every call of torch
            settings.enter_context(torch.device("cpu"))
        plain = type(torch.empty(0)) is torch.Tensor
        require(plain, "A mode of torch in which tensors have no values is on (FakeTensorMode, say): leave it first.")
        yield
