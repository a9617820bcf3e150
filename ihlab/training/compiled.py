"""Compile the training loss with `torch.compile`, once per process for all similar runs."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from shutil import which
from typing import Any

import torch
from torch import Tensor

from ihlab.training.config import RunConfig
from tasks.config import ConfigError

_current: list[Any] = []
"""The kind of run whose graphs torch now holds. Empty if no other run may use them."""


def compiled(
    loss: Callable[..., Tensor], config: RunConfig, device: torch.device, members: int | None = None
) -> Callable[..., Tensor]:
    """Return the loss of a run, or of a stack of `members`, compiled if its config says so.

    `loss` is a module-level function of a model (for a stack: of a module and stacked weights) and
    of the tensors of a batch. A graph takes the weights as arguments, so a later run of the same
    kind reuses it. The number of scored positions is a dynamic size from the first step on; a stack
    has one graph for each of a few sizes (`ihlab.training.ensemble.stack_batches`). So a run's
    numbers do not depend on the runs before it.

    Graphs of other kinds of runs are dropped first: torch keeps at most eight graphs per function,
    then silently runs eagerly. On a CPU without a C++ compiler, return `loss` itself, with a
    warning (`can_compile`).
    """
    if not (config.compile and can_compile(device.type)):
        return loss
    kind = (config.graph, device, members)
    if config.clamps or _current != [kind]:
        forget()
        # A clamp is a hook. It is compiled into the graph without a guard, so no other run may use
        # that graph.
        _current[:] = [] if config.clamps else [kind]

    def called(*arguments: Any) -> Tensor:
        if (
            members is None and arguments[2] is not None
        ):  # the number of scored positions, and of gathered queries
            from torch._dynamo import maybe_mark_dynamic

            for x in arguments[2:]:
                if x is not None:
                    maybe_mark_dynamic(x, x.ndim - 1)
        dynamic = None if members is None else False
        return _compiled(loss, dynamic)(*arguments)

    return called


@contextmanager
def explained() -> Iterator[None]:
    """Raise `ConfigError` if torch fails to compile, or to load what it compiled before (a
    truncated library, say).
    """
    # Imported here: the compiler takes seconds, and most runs are not compiled.
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import InductorError
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    try:
        yield
    except (TorchDynamoException, InductorError, ImportError, OSError) as error:
        said = " ".join(str(error).split())[:300].rstrip(".")
        raise ConfigError(
            f"torch.compile failed ({said}): delete its cache, {cache_dir()}, and start again, or set compile to False."
        ) from error


def forget() -> None:
    """Drop every graph, and restart torch's count of graphs per function."""
    torch.compiler.reset()
    _current.clear()


def can_compile(device_type: str) -> bool:
    """Return False, with a warning, for a CPU without a C++ compiler, else True.

    Without a compiler, runs are trained uncompiled: only speed and rounding change.
    """
    compiler = os.environ.get(
        "CXX", {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    )  # torch's choice
    if device_type != "cpu" or which(compiler) is not None:
        return True
    warnings.warn(
        f"RunConfig.compile is True, but there is no C++ compiler '{compiler}': the run is not compiled, so it "
        "is slower. Install one, or name it in the environment variable CXX.",
        stacklevel=3,
    )
    return False


@cache
def _compiled(loss: Callable[..., Tensor], dynamic: bool | None) -> Callable[..., Tensor]:
    return torch.compile(loss, dynamic=dynamic)
