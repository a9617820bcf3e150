"""The kernels' cache: used where there is a place, done without where there is none."""

from contextlib import contextmanager

import numba
import pytest

from tasks.compiled import kernel


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


def test_one_process_at_a_time_compiles_and_the_lock_is_taken_once(tmp_path, monkeypatch):
    folders = []

    @contextmanager
    def noted(folder):
        folders.append(folder)
        yield

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tasks.compiled.one_at_a_time", noted)
    call = kernel(double)
    assert [call(3), call(4)] == [6, 8]
    assert folders == list(tmp_path.iterdir())
