"""How many runs are trained at a time: one for each core that there is memory for."""

import os

import pytest

from ihlab.sweep import jobs
from ihlab.sweep.jobs import cores, default_jobs

GIB = 2**30


@pytest.fixture(autouse=True)
def container(monkeypatch, tmp_path):
    """A file that a test may write: the limit of the container."""
    monkeypatch.setattr(jobs, "_CONTAINER", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


def test_where_a_system_knows_no_affinity_all_cores_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert cores() == 10


@pytest.mark.parametrize(
    ("limit", "expected"), [("200000 100000", 2), ("150000 100000", 2), ("max 100000", 5)]
)
def test_a_container_may_have_the_time_of_fewer(monkeypatch, container, limit, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    assert cores() == 5  # that the process may use
    container.write_text(limit + "\n")
    assert cores() == expected


@pytest.mark.parametrize(("n_cores", "memory", "expected"), [(12, 64, 12), (12, 16, 8), (8, 1, 1)])
def test_a_job_for_each_core_that_has_memory(monkeypatch, n_cores, memory, expected):
    monkeypatch.setattr(jobs, "cores", lambda: n_cores)
    monkeypatch.setattr(jobs, "machine_memory", lambda: memory * GIB)
    assert default_jobs("cpu") == expected
