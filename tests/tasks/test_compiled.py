"""The kernels' cache: used where there is a place, done without where there is none."""

import os
import time

import numba
import pytest

from tasks.compiled import kernel
from tasks.files import one_at_a_time


def double(x):
    return 2 * x


def test_no_place_for_a_cache_means_no_cache(monkeypatch):
    def nowhere(dispatcher):
        raise RuntimeError("cannot cache function 'double': no locator available for file")

    monkeypatch.setattr("numba.core.dispatcher.Dispatcher.enable_caching", nowhere)
    assert kernel(double)(3) == 6


@pytest.mark.parametrize("damage", [b"", b"\x80\x05garbage", bytes(range(7, 60))])
def test_a_damaged_cache_is_done_without(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert kernel(double)(3) == 6
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(damage)
    assert len(list(tmp_path.rglob("*.nbi"))) == 1
    assert kernel(double)(4) == 8


def test_a_process_waits_for_the_code_that_another_compiles(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    call = kernel(double)
    with one_at_a_time(next(tmp_path.iterdir())):
        child = os.fork()
        if not child:
            os._exit(call(3))
        time.sleep(0.2)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
