"""Compilation of the kernels, cached on disk where possible."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function with numba to run without the GIL. Its code is cached beside the source or in the home folder.

    If neither is writable (a system-wide install, a user without a home directory), or the cache fails (a full
    disk, a damaged file), the function is compiled for this process only: a slower start, the same sequences.
    """
    uncached = numba.njit(nogil=True)(function)
    try:
        cached = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable folder for a cache
        return uncached

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            return cached(*args)
        except (
            Exception
        ):  # a damaged cache can raise anything; an error in the function itself is raised again
            return uncached(*args)

    return call
