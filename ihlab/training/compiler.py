"""What `torch.compile` compiles with on a machine. Imports torch alone: a set-up prepares it before there is more."""

import os
import sys
import warnings
from collections.abc import Callable
from shutil import which
from typing import Any

import torch

Options = dict[str, str | int | bool | Callable[..., Any]]

CALLED_BY_CPP: Options = {"cpp_wrapper": True, "cpp_wrapper_build_separate": True}


def compiler_options(device_type: str) -> Options | None:
    """Return the options of `torch.compile` with which a run on a device is compiled; None: torch's own.

    On a CPU C++ calls the kernels, not Python, and all kernels of a graph are one file for the C++ compiler, the calls
    another: less to compile, shorter steps of small models, and the same numbers (docs/LOG.md). Elsewhere than on Linux
    that has not been tried, and a torch that lacks these options compiles as it does without them.
    """
    from torch._inductor import list_options  # loads the compiler

    by_cpp = device_type == "cpu" and sys.platform == "linux" and CALLED_BY_CPP.keys() <= set(list_options())
    return CALLED_BY_CPP if by_cpp else None


def can_compile(device_type: str) -> bool:
    """Return False, with a warning, for a CPU without a C++ compiler, else True.

    Runs are trained uncompiled there: the same but for speed and rounding.
    """
    compiler = os.environ.get("CXX", {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++"))  # torch's choice
    if device_type != "cpu" or which(compiler) is not None:
        return True
    warnings.warn(
        f"RunConfig.compile is True, but there is no C++ compiler '{compiler}' to compile with: the run is trained "
        "without, more slowly. Install one, or name it in the environment variable CXX.",
        stacklevel=3,
    )
    return False


def prepare() -> None:
    """Compile something small, and with it what torch keeps for all that is compiled later.

    That is its C++ headers and which vector instructions the CPU has: 20 s. A set-up does it while pip works.
    """
    x = torch.ones(64, requires_grad=True)
    torch.compile(torch.sin, options=compiler_options("cpu"))(x).sum().backward()


if __name__ == "__main__":
    prepare()
