"""The kernels' cache: used where there is a place, done without where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import tasks
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


def test_an_error_of_the_function_is_raised():
    def fails(x):
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        kernel(fails)(1)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_a_home_draws_rows_from_an_installation_of_another():
    """What compiling loads is loaded before: another user may not be able to read this Python."""
    script = """
import os, sys
import numpy as np
import tasks
task = tasks.InductionTask(vocab_size=40, length=12)
before = task.batch(3, np.random.default_rng(0)).inputs
del sys.modules["tasks.kernels.induction"]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert not os.access(tasks.__path__[0] + "/kernels", os.W_OK)
assert (task.batch(3, np.random.default_rng(0)).inputs == before).all()
"""
    home = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    }
    where = Path(tasks.__path__[0]).parent
    if any(folder.stat().st_mode & 0o005 != 0o005 for folder in (where, *where.parents)):
        pytest.skip("another user cannot read this folder")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**home, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
