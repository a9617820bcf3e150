"""Compilation of the kernels, cached on disk where possible."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numba

from tasks.files import one_at_a_time


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function with numba to run without the GIL. Its code is cached beside the source or in the home folder.

    Of several processes one compiles, and the others wait to read its code. If no cache is writable (a system-wide
    install, a user without a home directory), or it fails (a full disk, a damaged file), the function is compiled for
    this process only: a slower start, the same sequences.
    """
    uncached = numba.njit(nogil=True)(function)
    try:
        cached = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable folder for a cache
        return uncached

    @wraps(function)
    def call(*args: Any) -> Any:
        # A damaged cache can raise anything. An error in the function itself is raised again.
        try:
            if cached.signatures:
                return cached(*args)
            with one_at_a_time(Path(cached._cache.cache_path)):
                return cached(*args)
        except Exception:
            return uncached(*args)

    return call
