"""Memory of worker processes: what is freed is kept, and pages are large."""

import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ihlab.sweep.memory import TUNABLES, huge_pages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt and no tunables"),
]

FAULTS = """
import resource, sys
import numpy as np
from ihlab.sweep.memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(20):
    blocks = [np.ones(2**17) for _ in range(40)]
    del blocks
    if _ == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

HUGE = """
import re
from pathlib import Path

block = bytearray(2**26)
print(re.search(r"AnonHugePages: +(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())[1])
"""

GIVEN = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def printed(script, *arguments):
    return int(subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, check=True).stdout)


def test_freed_memory_is_kept():
    """40 blocks of a MiB, made and freed 20 times, are 256 pages each that are faulted in once."""
    given_back, kept = (printed(FAULTS, how) for how in ("give", "keep"))
    assert kept < 1000 < given_back


@pytest.mark.skipif(
    not GIVEN.exists() or "[madvise]" not in GIVEN.read_text(), reason="Linux gives all such pages or none"
)
def test_a_process_started_meanwhile_asks_for_huge_pages():
    """Of 64 MiB all but the ends."""
    if tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 35):
        pytest.skip("glibc is older than this tunable")
    before = printed(HUGE)
    with huge_pages():
        assert printed(HUGE) >= before + 60 * 1024
    assert printed(HUGE) == before


@pytest.mark.parametrize("own", [None, "glibc.malloc.hugetlb=0:glibc.malloc.arena_max=1"])
def test_what_the_user_has_set_holds_and_is_as_it_was(monkeypatch, own):
    monkeypatch.delenv(TUNABLES, raising=False)
    if own:
        monkeypatch.setenv(TUNABLES, own)
    with suppress(ZeroDivisionError), huge_pages():
        assert os.environ[TUNABLES] == ":".join(["glibc.malloc.hugetlb=1", *([own] if own else [])])
        if own:
            assert printed(HUGE) == 0
        raise ZeroDivisionError
    assert os.environ.get(TUNABLES) == own
