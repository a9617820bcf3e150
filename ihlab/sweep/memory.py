"""How worker processes hold memory, where the C library is glibc: small models' steps make and free it all the time."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h

TUNABLES = "GLIBC_TUNABLES"
"""The environment variable that a process's C library reads when the process starts."""


def keep_freed_memory() -> None:
    """Let this process keep the memory it frees.

    By default large blocks go back to the system after each step, and are faulted in again page by page in the next:
    some 8% of the time of small models. The most that a process holds is the same.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, 2**30)
        mallopt(_M_MMAP_THRESHOLD, 2**25)  # the largest that it takes


@contextmanager
def huge_pages() -> Iterator[None]:
    """Let processes that are started meanwhile ask for memory in pages of 2 MiB: some 2% of the time of small models.

    From glibc 2.35 on, and where Linux gives such pages to those that ask. What GLIBC_TUNABLES says already holds.
    """
    before = os.environ.get(TUNABLES)
    os.environ[TUNABLES] = ":".join(filter(None, ("glibc.malloc.hugetlb=1", before)))  # of two the last counts
    try:
        yield
    finally:
        if before is None:
            del os.environ[TUNABLES]
        else:
            os.environ[TUNABLES] = before
