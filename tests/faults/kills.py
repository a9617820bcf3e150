"""Random kills: training that is killed repeatedly and resumed must end like training that was
never killed.

`campaign` kills commands (training of a run, of a stacked ensemble, commands with worker processes,
and commands that write files about a run) with SIGKILL, SIGTERM and SIGINT: at any moment, in the
middle of writing a file, and after the first checkpoint. It starts the same command again until it
has finished, and compares its files, byte for byte, with those of an undisturbed command.
Everything is drawn from one seed, except the scheduling of the processes.
"""

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import psutil
from safetensors.numpy import load_file, save

from ihlab import ModelConfig, RunConfig
from ihlab import train as train_run
from tasks import InductionTask
from tests.faults.table import Row, Tally
from tests.forked import CONTEXT, session_of

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ANY, WRITE, LATER = "at any moment", "in the middle of a write", "after its first checkpoint"

USUAL = {ANY: 0.2, WRITE: 0.4, LATER: 0.4}
"""Probabilities of the moments."""

TO_END, RAY_TO_END = 10.0, 90.0
"""Seconds after which no process of a killed command may still be alive. Ray's agents notice its
end after a minute.
"""

FOR_EVER = 300.0  # seconds

TRAIN = """
train induction --name killed --device cpu --steps 60 --batch-size 8 --eval-every 7 --eval-growth 0 --eval-rows 16
--checkpoints 5 --task.vocab-size 40 --task.length 12 --model.attention kv_shift --model.n-layers 1 --model.d-model 8
--model.n-heads 2 --model.d-vocab 40 --model.n-ctx 12
"""

GRID = """
name = "killed"
seeds = 3
steps = 300
batch_size = 8
eval_every = 40
eval_growth = 0.0
eval_rows = 16
checkpoints = 5
task = { kind = "induction", vocab_size = 40, length = 12 }
model = { n_layers = 1, d_model = 8, n_heads = 2, d_vocab = 40, n_ctx = 12, attention = "kv_shift" }
"""


def train(folder: Path) -> list[str]:
    return [*TRAIN.split(), "--root", str(folder)]


def ensemble(folder: Path) -> list[str]:
    return [*train(folder), "--members", "3"]


def sweep(folder: Path) -> list[str]:
    grid = folder.with_suffix(".toml")
    grid.write_text(GRID)
    places = f"--root {folder} --out {folder}/all.csv"
    return f"sweep {grid} --device cpu --jobs 2 {places}".split()


def ray_sweep(folder: Path) -> list[str]:
    return [*sweep(folder), "--engine", "ray"]


def reproduce(folder: Path) -> list[str]:
    study = folder / "figures" / "table5" / "study.py"
    study.parent.mkdir(parents=True, exist_ok=True)
    study.write_bytes((FIGURES / "table5" / "study.py").read_bytes())
    places = ["--runs", str(folder), "--figures", f"{folder}/figures"]
    return [*"reproduce table5 --scale smoke --device cpu --jobs 2".split(), *places]


def about_a_run(command: str) -> Callable[[Path], list[str]]:
    """Return a command about a small run, {run} in {folder}, which is trained first."""

    def arguments(folder: Path) -> list[str]:
        config = SMALL.replace(name="small")
        with TRAINING:
            train_run(config, folder, "cpu", report=lambda *_, **__: None)
        return [word.format(folder=folder, run=config.folder(folder)) for word in command.split()]

    return arguments


TRAINING = Lock()
SMALL = RunConfig(
    task=InductionTask(vocab_size=6, length=6, min_token=0),
    model=ModelConfig(
        n_layers=1,
        d_model=8,
        n_heads=1,
        d_vocab=6,
        n_ctx=6,
        attention="kv_shift",
        positional="none",
        mlp="none",
    ),
    steps=5,
    warmup=1,
    batch_size=8,
    eval_rows=16,
)
FIGURES = Path(__file__).parents[2] / "figures"
KINDS: dict[str, Callable[[Path], list[str]]] = {
    "train": train,
    "train --members 3": ensemble,
    "sweep": sweep,
    "sweep --engine ray": ray_sweep,
    "reproduce": reproduce,
    "certify": about_a_run(
        "certify {run} --out {folder}/c.safetensors --csv {folder}/c.csv --export {folder}/proof"
    ),
    "attack": about_a_run("attack {run} --questions 2 --out {folder}/a.svg --csv {folder}/a.csv"),
    "view": about_a_run("view {run} --out {folder}/v.html"),
    "suite export": about_a_run("suite export induction-vanilla-2 {folder}/export"),
    "bench": about_a_run(
        "bench attribution-patching --quick --member hand-set-two-layers --out {folder}/bench"
    ),
}
"""The `ihlab` commands that are killed, by their names in the table."""

POOLED = ("sweep", "sweep --engine ray", "reproduce")
"""The commands with worker processes."""

WRITES = {"train": 22, "train --members 3": 66, "sweep": 5, "reproduce": 8}
WRITES |= {"certify": 6, "attack": 2, "view": 1, "suite export": 9, "bench": 1}
"""Number of files that the process of each command writes, one after another."""

WITHOUT_CHECKPOINTS = ("certify", "attack", "view", "suite export", "bench")
FINDING = {"certify": {1}, "attack": {1}}
"""Exit codes, beside 0, of commands that have finished and say what they found."""

WRITES_OF_WORKER = 21


@dataclass(frozen=True)
class Kill:
    """A signal to the command ("parent"), to it and its workers ("group"), or to workers
    ("worker").

    `after`: seconds from the start or, with `later`, from the first new checkpoint. None: in the
    middle of the `write`-th file that the command, or a worker (`by_worker`), writes. When the
    writer dies, the file has its whole content but not yet its name, or only a fraction `part` of
    its content (between 0 and 1), or already its name (`part` below 0).
    """

    signum: int
    to: str
    after: float | None
    later: bool
    by_worker: bool
    write: int
    part: float

    @property
    def moment(self) -> str:
        return WRITE if self.after is None else LATER if self.later else ANY


def draw(
    kind: str, whole: "Attempt", rng: np.random.Generator, moments: Mapping[str, float]
) -> Kill:
    """Draw a kill of a command, given an undisturbed attempt and the probability of each moment."""
    moment = LATER
    if kind in WRITES:
        moment = rng.choice(list(moments), p=list(moments.values()))
    if moment == LATER and kind in WITHOUT_CHECKPOINTS:
        moment = ANY
    by_worker = bool(kind in POOLED and moment == WRITE and rng.random() < 0.7)
    targets = ["parent"]
    if kind in POOLED:
        targets.append("group")
        if by_worker or moment == LATER:
            targets.append("worker")
    after = None
    if moment != WRITE:
        after = float(rng.uniform(0, whole.seconds - whole.first * (moment == LATER)))
    return Kill(
        signum=int(rng.choice(SIGNALS)),
        to=str(rng.choice(targets)),
        after=after,
        later=moment == LATER,
        by_worker=by_worker,
        write=int(rng.integers(WRITES_OF_WORKER if by_worker else WRITES.get(kind, 1))) + 1,
        part=float(rng.uniform(-0.5, 1.5)),
    )


# In the command's process, and in a sweep's workers


def kill_in_write(kill: Kill, note: str) -> None:
    """Let this process carry out a kill when it renames its `write`-th file. It then writes the
    file `note`.
    """
    replace, write, count = os.replace, os.write, 0
    from_worker = kill.by_worker and kill.to == "parent"

    def counted(partly: Callable[[], Any]) -> None:
        """Count a write. At the planned one, do it partly if SIGKILL ends this process, and kill."""
        nonlocal count
        count += 1
        if count != kill.write or Path(note).exists():
            return
        Path(note).touch()
        if kill.signum == signal.SIGKILL and not from_worker:
            partly()
        parent = multiprocessing.parent_process() if kill.by_worker else None
        pids = [os.getpid()]
        if parent and kill.to != "worker":
            pids = [parent.pid or 0]
        if kill.to == "group":
            pids += living(note)
        for pid in pids:
            os.kill(pid, kill.signum)

    def killing(source: Any, target: Any) -> None:
        def partly() -> None:
            if kill.part < 0:
                replace(source, target)
            elif kill.part < 1:
                os.truncate(source, int(kill.part * os.path.getsize(source)))

        if ".partial" in str(source):
            counted(partly)
        replace(source, target)

    def cutting(file: int, content: Any) -> int:
        """Write a part of a row of metrics, and then be killed."""
        if os.path.realpath(f"/proc/self/fd/{file}").endswith("metrics.csv"):
            part = int(max(0.0, min(kill.part, 1.0)) * len(content))
            counted(lambda: write(file, content[:part]))
        return write(file, content)

    os.replace, os.write = killing, cutting


def start_worker(kill: Kill | None, note: str, *arguments: Any) -> None:
    """Start a worker of a pool, which writes down its process and carries out a kill."""
    from ihlab.sweep.pool import _start_worker

    with Path(note).with_suffix(".workers").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if kill and kill.after is None and kill.by_worker:
        kill_in_write(kill, note)
    _start_worker(*arguments)


def fork_workers(kill: Kill | None, note: str) -> None:
    """Let pools fork their workers from the server of this process: each would import torch for
    seconds.
    """
    from ihlab.sweep import pool

    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    pool._context = multiprocessing.get_context("forkserver")  # type: ignore[assignment]
    pool._start_worker = partial(start_worker, kill, note)


def forget_optimizer() -> None:
    """Resume without AdamW's state: a deliberate fault, for the test that the campaign detects it."""
    from ihlab.training import checkpoint

    checkpoint.load_optimizer_state = lambda *arguments: None


def command(
    arguments: Sequence[str], planned: Mapping[str, Any] | None, note: str, sabotage: bool
) -> None:
    """Run the command with a planned kill, in its own process and session.

    Outside of `main`, SIGINT ends the process as SIGTERM does: multiprocessing would exit with 1.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getsid(0) != os.getpid():
        os.setsid()
    printed = os.open(output(note), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(printed, stream)
    import torch

    from ihlab.cli import main

    torch.set_num_threads(1)
    if sabotage:
        forget_optimizer()
    kill = Kill(**planned) if planned else None
    fork_workers(kill, note)
    if kill and kill.after is None and not kill.by_worker:
        kill_in_write(kill, note)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main(arguments)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


# In the campaign's process


def output(note: str) -> Path:
    """Return the file that gets what a command prints."""
    return Path(note).with_suffix(".out")


def living(note: str) -> list[int]:
    """Return the living workers of the command with this note."""
    path = Path(note).with_suffix(".workers")
    known = {int(pid) for pid in path.read_text().split()} if path.exists() else set()
    of_all = psutil.process_iter(["status"])
    return [
        each.pid
        for each in of_all
        if each.pid in known and each.info["status"] != psutil.STATUS_ZOMBIE
    ]


class Started:
    """A command in a process forked from one that has imported everything already, which saves
    seconds.
    """

    def __init__(self, arguments: list[str], kill: Kill | None, note: str, sabotage: bool) -> None:
        self.note, planned = note, asdict(kill) if kill else None
        self.process = CONTEXT.Process(target=command, args=(arguments, planned, note, sabotage))
        self.process.start()

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, None if the command has not ended after these seconds."""
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self, kill: Kill) -> None:
        """Send a kill's signal."""
        pids = [] if kill.to == "worker" else [self.process.pid]
        for pid in pids if kill.to == "parent" else [*pids, *self.workers()]:
            with suppress(ProcessLookupError):
                os.kill(pid, kill.signum)

    def workers(self) -> list[int]:
        """Return the living processes that train, of a pool or of Ray."""
        with suppress(psutil.Error):
            below = psutil.Process(self.process.pid).children(recursive=True)
            return living(self.note) + [each.pid for each in below if "ray::_do" in each.cmdline()]
        return living(self.note)

    def alive(self) -> list[int]:
        """Return the living processes of the command, its own included."""
        return session_of(self.process.pid) + living(self.note)


def checkpoints(folder: Path) -> set[Path]:
    return set(folder.rglob("step-*.safetensors"))


class Attempt:
    """One start of a command, killed as planned: whether it `was_killed`, its exit `code`, and what
    was `wrong`.

    `first` and `seconds`: the times of its first checkpoint and of its end.
    """

    def __init__(self, kind: str, folder: Path, kill: Kill | None, sabotage: bool) -> None:
        note = folder.with_suffix(".killed")
        for path in (note, note.with_suffix(".workers")):
            path.unlink(missing_ok=True)
        output(str(note)).write_text("")
        begun, before = time.perf_counter(), checkpoints(folder)
        started = Started(KINDS[kind](folder), kill, str(note), sabotage)
        code, self.was_killed, self.finished = None, False, {0, *FINDING.get(kind, ())}
        if kill is None or kill.later:
            while (
                code is None
                and checkpoints(folder) <= before
                and time.perf_counter() - begun < FOR_EVER
            ):
                code = started.wait(0.02)
        self.first = time.perf_counter() - begun
        if kill and kill.after is not None and code is None:
            code = started.wait(kill.after)
            self.was_killed = code is None
            if self.was_killed:
                started.kill(kill)
        self.code = started.wait(FOR_EVER) if code is None else code
        self.seconds = time.perf_counter() - begun
        self.was_killed |= note.exists()
        self.wrong = []
        if self.code not in self._codes(kill):
            printed = output(str(note)).read_text(errors="replace")
            self.wrong.append(f"exit code {self.code}, printed {printed[-1000:]!r}")
        deadline = time.monotonic() + (RAY_TO_END if kind == "sweep --engine ray" else TO_END)
        while (alive := started.alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if alive:
            self.wrong.append(f"{len(alive)} processes live on")
        for pid in alive:
            os.kill(pid, signal.SIGKILL)

    def _codes(self, kill: Kill | None) -> set[int]:
        """Return the allowed exit codes of a command that has finished, or was killed."""
        if not (kill and self.was_killed):
            return self.finished
        return {*self.finished, -kill.signum, 128 + kill.signum}


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of all files under a folder except locks, without parts that differ in any
    two trainings.

    Bytecode holds the time at which its source was written, so a second copy of a study has other
    bytes.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name.endswith((".lock", ".pyc")):
            continue
        read = path.read_bytes()
        if path.name == "done.json":
            done = json.loads(read)
            read = json.dumps(
                {name: done[name] for name in ("steps", "n_params", "threads")}
            ).encode()
        elif path.name.endswith(".optimizer.safetensors"):
            tensors = load_file(path)
            tensors.pop("tally/seconds", None)
            read = save(tensors)
        elif path.name == "manifest.json":
            read = json.dumps({**json.loads(read), "training_seconds": 0}).encode()
        elif path.name == "all.csv":
            read = (
                pd.read_csv(path).drop(columns="seconds").to_csv().replace(str(folder), "").encode()
            )
        files[str(path.relative_to(folder))] = read
    return files


def _chain(
    kind: str, folder: Path, planned: Sequence[Kill], whole: Mapping[str, bytes], sabotage: bool
) -> list[tuple[str, list[str]]]:
    """Kill a command repeatedly as planned, then let it finish. Return the moment and the faults of
    each kill.
    """
    ended: list[tuple[str, list[str]]] = []
    finished = False
    for kill in planned:
        attempt = Attempt(kind, folder, kill, sabotage)
        finished = attempt.code in attempt.finished
        if attempt.was_killed:
            ended.append((kill.moment, attempt.wrong))
        if finished:
            break
    wrong = [] if finished else Attempt(kind, folder, None, sabotage).wrong
    left = content(folder)
    wrong += [
        f"{name} differs" for name in sorted({*left, *whole}) if left.get(name) != whole.get(name)
    ]
    return [(moment, faults + wrong) for moment, faults in ended]


def campaign(
    kills: int,
    seed: int,
    folder: Path,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    moments: Mapping[str, float] = USUAL,
    sabotage: bool = False,
) -> list[Row]:
    """Kill commands this many times. Return the kills and the failed kills, per command and moment.

    A kill fails if the command ends with a wrong exit code or leaves processes behind. All kills of
    a command fail if its files differ in the end from those of a command that was never killed, or
    if other files are left. Faults are printed to stderr.
    """
    rng, tally = np.random.default_rng(seed), Tally()
    folder.mkdir(parents=True, exist_ok=True)
    shares = np.array([1 if "ray" in kind else 4 for kind in kinds])  # Ray takes minutes
    numbers = np.ceil(kills * shares / shares.sum()).astype(int)
    for i, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
        if i == 0:  # the first fork waits for the imports
            Attempt(kind, folder / "first", None, False)
        whole = Attempt(kind, folder / f"{i}-whole", None, False)
        assert not whole.wrong, whole.wrong
        expected = content(folder / f"{i}-whole")
        done = 0
        while done < number:
            planned = [
                draw(kind, whole, rng, moments)
                for _ in range(min(int(rng.integers(1, 5)), number - done))
            ]
            name = f"{i}-{done}-{rng.integers(2**31)}"
            for moment, wrong in _chain(kind, folder / name, planned, expected, sabotage):
                done += 1
                tally.add(f"{kind}, {moment}", "; ".join(wrong), name)
            shutil.rmtree(folder / name, ignore_errors=True)
    return tally.rows()
