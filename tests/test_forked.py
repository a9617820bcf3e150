"""Processes forked from a server: where it is started, which decides whether it finds what it is to import."""

from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.forked import CONTEXT, ROOT

pytestmark = pytest.mark.slow


def test_the_server_is_started_from_the_root_wherever_the_test_is(tmp_path, monkeypatch):
    seen, ensure = [], forkserver.ensure_running
    monkeypatch.setattr(forkserver, "ensure_running", lambda: (seen.append(Path.cwd()), ensure()))
    monkeypatch.chdir(tmp_path)
    process = CONTEXT.Process(target=print)
    process.start()
    process.join()
    assert seen == [ROOT]
    assert Path.cwd() == tmp_path
    assert process.exitcode == 0
