"""Processes that are forked from one that has imported everything, which takes seconds each time.

They are processes like any others: they are killed, they exit with a code, they have an environment and a folder to
work in. What is asked of Python's own start (imports, the streams' encoding) needs a real one.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

ROOT = Path(__file__).parents[1]


class _Process(ForkServerProcess):
    """A process with the environment of its parent at this moment, as one that is started anew has it."""

    def __init__(self, *args, env: Mapping[str, str] | None = None, **more):
        super().__init__(*args, **more)
        self.env = dict(os.environ if env is None else env)

    def start(self):
        """Start the server from the root, wherever a test has gone: it looks for what it preloads where it is started.

        What it does not find it leaves out without a word, and every process then imports everything for itself.
        """
        with contextlib.chdir(ROOT):
            forkserver.ensure_running()
        super().start()

    def run(self):
        os.environ.clear()
        os.environ.update(self.env)
        super().run()


class _Context(ForkServerContext):
    Process = _Process


CONTEXT = _Context()
"""Starts processes as `multiprocessing.get_context("spawn")` does, from a server that starts with the first of them."""

CONTEXT.set_forkserver_preload(["tests.faults.loaded"])


def _run(script: str, arguments: tuple[str, ...], folder: str, out: str, err: str) -> None:
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    sys.path.insert(0, "")
    sys.argv = ["-c", *arguments]
    exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})


def python(script: str, *arguments: str, cwd: str | Path = ".") -> subprocess.CompletedProcess[str]:
    """Do what `python -c script arguments` does, in a forked process, and return what it printed and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = CONTEXT.Process(target=_run, args=(script, arguments, os.path.abspath(cwd), str(out), str(err)))
        process.start()
        process.join()
        printed = [path.read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess([script, *arguments], process.exitcode, *printed)
