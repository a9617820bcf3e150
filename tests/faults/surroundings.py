"""Hostile surroundings: full and read-only disks, clocks that go back, two processes on one run, no
home, no TMPDIR.

A command must end normally or with one sentence. Afterwards the same command in usual surroundings
must end normally, with the files, byte for byte, of a command that was never disturbed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import Any, NamedTuple

from ihlab.cli import SYSTEM_ERROR
from tests.faults import kills
from tests.faults.table import Row, Tally, sample
from tests.faults.time_limit import Slow, time_limit
from tests.forked import python

SECONDS = 240.0

FULL, LIMITED, MEMORY, READ_ONLY, CLOCK, TWICE, PLACES = (
    "a full disk, and a full standard output",
    "files of limited size",
    "too little memory, at any allocation",
    "read-only folders",
    "a clock that goes back",
    "two processes at the same time",
    "home and temporary folders that are missing or closed, other locales and umasks",
)

SCRIPT = "import os, sys; exec(sys.argv.pop(1)); from ihlab.cli import main; main({})"

FORKED = """
from tests.faults.kills import fork_workers
fork_workers(None, "note")
os.environ["IHLAB_CACHE"] = os.path.abspath("cache")
"""

STOPPED = """
from tests.faults.kills import Kill, kill_in_write
kill_in_write(Kill(15, "parent", None, False, False, {write}, 2.0), {note!r})
"""
"""Stops the process in the middle of a write."""

NO_ROOM = """
import errno
write, room = os.fsync, {room}
def full(number):
    global room
    room -= 1
    if room < 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write(number)
os.fsync = full
"""

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_{what}, ({limit}, {limit}))"
BETWEEN = 2 * 2**30, 3 * 2**30
"""Limits of memory, in bytes: from what the libraries need to load, to what the commands need."""

BACK = """
import random, time
drawn = random.Random({seed})
for name in ("time", "monotonic", "perf_counter"):
    clock = getattr(time, name)
    setattr(time, name, lambda clock=clock: clock() - drawn.choice((0, 0, 1e-3, 3600, 1e9)))
"""

STRANGER = "os.geteuid() or os.setuid(54321)\n"
"""Gives up the rights of root, for which no folder is read-only."""

Around = Callable[[Path], AbstractContextManager[object]]


class Case(NamedTuple):
    """A command in hostile surroundings.

    - `command`: returns its arguments, given the folder to which it writes;
    - `around`: makes this folder hostile and, at its end, usual again;
    - `before`: Python code that its process runs first;
    - `env`: changes of its environment, None for a variable that is not set. It then starts as a
      user starts it;
    - `times`: the number of processes that run it at the same time.
    """

    kind: str
    name: str
    command: Callable[[Path], list[str]]
    around: Around = nullcontext
    before: str = ""
    env: Mapping[str, str | None] | None = None
    times: int = 1

    @property
    def finished(self) -> set[int]:
        """Exit codes of the command when it has finished."""
        return {0, *kills.FINDING.get(self.name.partition(",")[0], ())}


def on_text(folder: Path) -> list[str]:
    """Train on text, which is prepared in the user's cache."""
    words = kills.TRAIN.replace("induction", "text").replace("vocab-size 40", "vocab-size 256")
    return [*words.replace("d-vocab 40", "d-vocab 256").split(), "--root", str(folder)]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o222)


def ended(case: Case, folder: Path) -> CompletedProcess[str]:
    arguments = case.command(folder)
    if case.env is None:
        return python(
            SCRIPT.format("sys.argv[1:]"), FORKED + case.before, *arguments, cwd=folder.parent
        )
    env = {name: value for name, value in {**os.environ, **case.env}.items() if value is not None}
    start = [sys.executable, "-c", SCRIPT.format(""), case.before, *arguments]
    where: dict[str, Any] = {"env": env, "cwd": folder.parent}
    try:
        return subprocess.run(
            start, **where, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:  # it was killed, so that the next case can begin
        return CompletedProcess(start, -9, "", f"more than {SECONDS} s")


DUMPED = "; import faulthandler; faulthandler.dump_traceback_later(60, exit=True)"
"""Ends a process that hangs, and prints where."""


def is_loading(stderr: str) -> bool:
    """Return whether a process hung while it loaded a library: OpenBLAS then asks for memory for
    ever (docs/faults.md, "What cannot be defended").
    """
    _, hung, frames = stderr.partition("(most recent call first):\n")
    return bool(hung) and "in create_module" in "".join(frames.splitlines()[:2])


def fault(case: Case, done: CompletedProcess[str]) -> str:
    """Return what is wrong with the end of a command: neither finished nor one sentence with a code
    of its own.
    """
    last = done.stderr.splitlines()[-1:] or [""]
    said = last[0].startswith("ihlab: ") and "Traceback" not in done.stderr
    refused = {1, 2, SYSTEM_ERROR, 130, 143} - case.finished
    if done.returncode < 0:  # the system ended it, and its second process says so
        refused.add(done.returncode)
    if is_loading(done.stderr):
        return ""
    if done.returncode in case.finished or (said and done.returncode in refused):
        return ""
    return f"exit code {done.returncode}: {done.stderr[-1500:]}"


def tried(case: Case, start: Path | None, whole: Mapping[str, bytes] | None, folder: Path) -> str:
    """Run a case, then its command in usual surroundings. Return a description of faults ("" if
    none).

    `start`: a folder to begin with. `whole`: the files in the end; None: those of `start`, which
    are only read.
    """
    shutil.copytree(start, folder) if start else folder.mkdir(parents=True)
    for place in (folder, folder.parent):
        place.chmod(0o777)
    usual = Case(case.kind, case.name, case.command)
    try:
        with time_limit(SECONDS), case.around(folder), ThreadPoolExecutor(case.times) as processes:
            done = list(processes.map(partial(ended, case), [folder] * case.times))
        wrong = [fault(case, each) for each in done]
        if start is None or whole is not None:
            with time_limit(SECONDS):
                last = ended(usual, folder)
            if last.returncode not in case.finished:
                wrong.append(f"again: {last.stderr[-1500:]}")
        left, right = (
            kills.content(folder),
            kills.content(start) if whole is None and start else whole or {},
        )
        wrong += [
            f"{name} differs"
            for name in sorted({*left, *right})
            if left.get(name) != right.get(name)
        ]
    except Slow as slow:
        wrong = [str(slow)]
    return "; ".join(filter(None, wrong))


# The cases


READERS: dict[str, Callable[[Path], list[str]]] = {
    "runs": lambda folder: ["runs", str(folder)],
    "heads": lambda folder: f"heads killed --rows 4 --root {folder}".split(),
}
WRITERS = {
    "train": kills.train,
    "train --members 3": kills.ensemble,
    "train text": on_text,
}
WRITERS |= {name: kills.KINDS[name] for name in kills.WITHOUT_CHECKPOINTS}
"""Commands, by the names of the folders that they make undisturbed."""

NO_HOME: dict[str, dict[str, str | None]] = {
    "no HOME": {"HOME": None},
    "a HOME that is closed": {"HOME": "/proc"},
    "a TMPDIR that is missing": {"TMPDIR": "/no/such/folder"},
    "neither": {"HOME": "/proc", "TMPDIR": "/proc"},
    "the locale C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # as the undisturbed run has, whose files are compared
ALONE = {"IHLAB_CACHE": None, "XDG_CACHE_HOME": None, "MPLCONFIGDIR": None}
UNKNOWN = (
    STRANGER + "[os.environ.pop(name, None) for name in ('HOME', 'USER', 'LOGNAME', 'IHLAB_CACHE')]"
)


def cases(whole: Mapping[str, Mapping[str, bytes]], rng: Random) -> list[tuple[Case, str, str]]:
    """Return all cases, each with the names of the folder to begin with and of the folder in the
    end ("": none).
    """
    made: list[tuple[Case, str, str]] = []

    def add(start: str, end: str, *arguments: object, **more: object) -> None:
        made.append((Case(*arguments, **more), start, end))  # type: ignore[arg-type]

    for name, command in [pair for pair in WRITERS.items() if pair[0] in whole]:
        largest = max(map(len, whole[name].values()))
        for _ in range(6):
            full = NO_ROOM.format(room=rng.randrange(40))
            add("", name, FULL, f"{name}, {full}", command, before=full)
            limited = LIMIT.format(what="FSIZE", limit=int(largest * rng.random()))
            add("", name, LIMITED, f"{name}, {limited}", command, before=limited)
            memory = LIMIT.format(what="AS", limit=rng.randrange(*BETWEEN)) + DUMPED
            add("", name, MEMORY, f"{name}, {memory}", command, before=memory, env=ONE_THREAD)
            back = BACK.format(seed=rng.random())
            add("stopped" if name == "train" else "", name, CLOCK, name, command, before=back)
        for _ in range(3):
            add("", name, TWICE, name, command, times=2)
        add("", name, READ_ONLY, name, command, read_only, STRANGER)
        for what, env in NO_HOME.items() if name in ("train text", "certify") else ():
            add("", name, PLACES, f"{name}, {what}", command, env=ALONE | env)
        add("", name, PLACES, f"{name}, umask 077", command, before="os.umask(0o077)")
    add("stopped", "train", READ_ONLY, "train, stopped", kills.train, read_only, STRANGER)
    add("", "sweep", TWICE, "sweep", kills.sweep, times=2)
    add("", "train text", PLACES, "train text, an unknown user", on_text, before=UNKNOWN)
    to_full = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    for name, command in READERS.items():
        add("train", "", READ_ONLY, name, command, read_only, STRANGER)
        add("train", "", FULL, f"{name} > /dev/full", command, before=to_full)
    return [each for each in made if {*each[1:]} <= {"", *whole}]


def campaign(
    limit: int | None, seed: int, folder: Path, names: Collection[str] = (*WRITERS, "sweep")
) -> list[Row]:
    """Return a row for each kind of surroundings: the number of cases, and of wrong ends, which go
    to stderr.

    - `limit`: number of cases to try, drawn with `seed`; None: all;
    - `folder`: the folder in which the commands run;
    - `names`: the commands that write.
    """
    rng, tally, made = Random(seed), Tally(), folder / "whole"
    folder.chmod(0o755)
    (made / "stopped").mkdir(parents=True)
    for name in names:
        case = Case("", name, WRITERS.get(name, kills.sweep))
        done = ended(case, made / name)
        assert done.returncode in case.finished, done.stderr
    stop = STOPPED.format(write=12, note=str(folder / "note"))
    done = ended(Case("", "", kills.train, before=stop), made / "stopped")
    assert done.returncode == 143, done.stderr
    whole = {path.name: kills.content(path) for path in made.iterdir() if path.is_dir()}
    for i, (case, start, end) in enumerate(sample(cases(whole, rng), limit, rng)):
        begin = made / start if start else None
        wrong = tried(case, begin, whole[end] if end else None, folder / str(i) / "runs")
        shutil.rmtree(folder / str(i), ignore_errors=True)
        tally.add(case.kind, wrong, f"{case.kind}: {case.name}")
    return tally.rows()
