"""Compilation of the kernels, cached on disk where there is a place for it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function with numba, without the GIL; its machine code is kept beside the source, or in the home.

    If neither can be written (a system-wide install, a user without a home directory), or the cache fails (a full
    disk, a damaged file), the function is compiled for this process only: a slower start, the same rows.
    """
    uncached = numba.njit(nogil=True)(function)
    try:
        cached = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # there is no place for a cache
        return uncached

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            return cached(*args)
        except Exception:  # whatever a damaged cache raises; an error of the function's own is raised again
            return uncached(*args)

    return call
