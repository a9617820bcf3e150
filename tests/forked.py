"""Processes forked from one that has already imported everything, which saves seconds per process.

They behave like any others: they can be killed, they exit with a code, and they have an environment
and a working folder. Tests of Python's own start (imports, the streams' encoding) need a real new
process.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


class _Process(ForkServerProcess):
    """A process with its parent's current environment, like a newly started one."""

    def __init__(self, *args, env: Mapping[str, str] | None = None, **more):
        super().__init__(*args, **more)
        self.env = dict(os.environ if env is None else env)

    def start(self):
        """Start the server from the repository's root, whatever a test's working folder: it finds
        its preloads there.

        The server silently skips modules that it does not find, and every process would then import
        everything.
        """
        with contextlib.chdir(ROOT):
            forkserver.ensure_running()
        super().start()

    def run(self):
        os.environ.clear()
        os.environ.update(self.env)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as Python starts
        super().run()


class _Context(ForkServerContext):
    Process = _Process


CONTEXT = _Context()
"""Starts processes like `multiprocessing.get_context("spawn")`, but from a server that starts with
the first one.
"""

CONTEXT.set_forkserver_preload(["tests.faults.loaded"])


def session_of(pid: int) -> list[int]:
    """Return the living processes of a session, the resource tracker included."""
    alive = []
    for other in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(other) == pid and psutil.Process(other).status() != psutil.STATUS_ZOMBIE:
                alive.append(other)
    return alive


def _run(script: str, arguments: tuple[str, ...], folder: str, out: str, err: str) -> None:
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    sys.path.insert(0, "")
    sys.argv = ["-c", *arguments]
    exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})


def python(script: str, *arguments: str, cwd: str | Path = ".") -> subprocess.CompletedProcess[str]:
    """Run `python -c script arguments` in a forked process, and return its output and exit code."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = CONTEXT.Process(
            target=_run, args=(script, arguments, os.path.abspath(cwd), str(out), str(err))
        )
        process.start()
        process.join()
        printed = [path.read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess([script, *arguments], process.exitcode, *printed)


def killed(write: Callable[[], object]) -> None:
    """Run a function in a process that is killed, at its first `os.replace` if it gets there."""
    child = os.fork()
    if not child:
        os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
        write()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
