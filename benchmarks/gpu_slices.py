"""GPU work in slices of a few minutes: `benchmarks/gpu.sh` starts a slice, which continues where the last one ended.

Stages are ordered by how much they teach per minute. Each is a separate command. It is told to stop shortly before the
slice ends, saves its work and continues in the next slice. `$OUT` then holds a few small files:

- status.json: the machine, the slices, and each stage's state;
- tests.xml, speed.csv, figures.tar.gz: the results;
- log.txt: what the stages printed;
- runs-1.tar.gz, ...: runs of unfinished figures, which a slice on another machine unpacks from `--carried`.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from gpu_pack import bundle, pack, unpack

from ihlab.storage.files import write_json
from ihlab.sweep.jobs import cores

HERE = Path(__file__).parent
RESULTS = ("status.json", "tests.xml", "speed.csv", "figures.tar.gz", "log.txt")
LARGEST = 16 * 2**20
"""Largest size in bytes of a file that a slice may leave."""

DONE, STOPPED, FAILED = "done", "stopped", "failed"


@dataclass(frozen=True)
class Stage:
    """A command that continues where it was stopped.

    - `command`: returns the command line for a slice; `good`: the exit codes that mean it finished;
    - `share`: the largest fraction of a slice's remaining time that it takes while later stages wait;
    - `weights`: its figure reads the weights of finished runs.
    """

    name: str
    command: Callable[["Slice"], list[str]]
    good: tuple[int, ...] = (0,)
    share: float = 1.0
    weights: bool = False


@dataclass
class Slice:
    """One slice: its device, folders and end time."""

    device: str
    out: Path
    work: Path
    scale: str
    jobs: int
    ends: float
    grace: float
    asked: bool = False
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """The seconds until the stages must stop."""
        return 0.0 if self.asked else self.ends - time.time()

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The state of each stage that was started."""
        stages: dict[str, dict[str, Any]] = self.status.setdefault("stages", {})
        return stages

    def write_status(self) -> None:
        """Write `status.json`."""
        write_json(self.out / "status.json", self.status)


def tests(slice_: Slice) -> list[str]:
    """Return the command of the device's tests, with a machine-readable report."""
    chosen = (
        "device_cuda" if slice_.device == "cuda" else "device_cpu and decoding and gpt2"
    )  # one test is enough
    report = f"--junit-xml={slice_.out / 'tests.xml'}"
    return [
        sys.executable,
        "-m",
        "pytest",
        "tests/cuda",
        "-m",
        "slow",
        "-k",
        chosen,
        "-q",
        "--tb=short",
        report,
    ]


def speed(slice_: Slice) -> list[str]:
    """Return the command that times training steps."""
    places = ["--out", str(slice_.out / "speed.csv")]
    return [sys.executable, str(HERE / "gpu_speed.py"), *places, "--device", slice_.device]


def _all_but_code(folder: str, names: list[str]) -> list[str]:
    """Return the names of a folder that no study reads: neither code, published data nor folders."""
    read = (".py", "_origin.csv")
    return [name for name in names if not (name.endswith(read) or Path(folder, name).is_dir())]


def reproduce(name: str, weights: bool = False, share: float = 1.0) -> Stage:
    """Return the stage of a figure at the slice's scale. Its runs have their own folder."""

    def command(slice_: Slice) -> list[str]:
        figures = slice_.work / "figures"
        studies = HERE.parent / "figures"  # without their tables
        shutil.copytree(studies, figures, ignore=_all_but_code, dirs_exist_ok=True)
        places = ["--runs", str(slice_.work / "runs" / name), "--figures", str(figures)]
        how = ["--scale", slice_.scale, "--device", slice_.device, "--jobs", str(slice_.jobs)]
        return [sys.executable, "-m", "ihlab", "reproduce", name, *how, *places]

    return Stage(name, command, share=share, weights=weights)


STAGES = {
    stage.name: stage
    for stage in (
        Stage("tests", tests, good=(0, 1), share=0.3),  # 1: some failed, which is a result
        reproduce("figure1a", share=0.4),
        Stage("speed", speed, share=0.5),
        reproduce("figure1b", weights=True, share=0.7),
        reproduce("figure8", weights=True),
    )
}
"""All stages by name, in order."""


def main(
    slice_seconds: Annotated[float, tyro.conf.arg(name="slice")] = 600.0,
    device: Literal["cuda", "cpu"] = "cuda",
    stages: tuple[str, ...] = (),
    out: Path | None = None,
    work: Path = Path("runs/gpu"),
    carried: Path | None = None,
    jobs: int | None = None,
    archives: int = 2,
    since: float | None = None,
) -> None:
    """Run the next unfinished stages until the slice is nearly over.

    Args:
        slice_seconds: Seconds from start to end, including packing.
        device: cuda; or cpu, to try the script at smoke scale.
        stages: Stages to run, in this order; by default all: tests, figure1a, speed, figure1b, figure8.
        out: Folder of the results; by default $OUT, else benchmarks/gpu.
        work: Folder of runs and figures between slices on one machine.
        carried: A folder with the files of the last slice, to continue on a new machine; by default out.
        jobs: Runs trained at a time on the device; by default 4 on a GPU (fewer if there are fewer cores), else 1.
        archives: Maximum number of files of unfinished runs, of up to 16 MiB each.
        since: Start time of the slice, in seconds since the epoch, if it was before this command.
    """
    began = time.time() if since is None else since
    unknown = set(stages) - set(STAGES)
    if unknown:
        sys.exit(f"There is no stage {', '.join(sorted(unknown))}: there are {', '.join(STAGES)}.")
    results = (out or Path(os.environ.get("OUT", HERE / "gpu"))).resolve()
    reserve = min(60.0, slice_seconds / 3)
    slice_ = Slice(
        device=device,
        out=results,
        work=work.resolve(),
        scale="gpu" if device == "cuda" else "smoke",
        jobs=jobs or (max(1, min(4, cores() // 2)) if device == "cuda" else 1),
        ends=began + slice_seconds - reserve,
        grace=reserve / 2,
    )
    require_device(device)
    results.mkdir(parents=True, exist_ok=True)
    fetch(slice_, (carried or results).resolve())
    slice_.status = read_status(slice_)
    with stopped_by_signals(slice_):
        run_stages(slice_, [STAGES[name] for name in stages or STAGES])
    left_out = keep(slice_, archives)
    this = {"seconds": round(time.time() - began, 1), **machine(device)}
    slice_.status |= {"slices": [*slice_.status.get("slices", []), this], "left_out": left_out}
    slice_.write_status()
    report(slice_, left_out)


def require_device(device: str) -> None:
    """Exit with a message if there is no such device, or if `ihlab` is not installed."""
    try:
        version("ihlab")
    except PackageNotFoundError:
        sys.exit(
            "ihlab is not installed: pip install --no-deps -e . (runs record its version), or its wheel in WHEELS."
        )
    if device == "cuda" and not _torch().cuda.is_available():
        sys.exit(
            "There is no GPU here: torch.cuda.is_available() is False. To try the script: --device cpu --slice 60."
        )


def _torch() -> Any:
    """Import torch. This takes seconds, which a slice on the CPU need not spend."""
    import torch

    return torch


def fetch(slice_: Slice, carried: Path) -> None:
    """Copy the results and runs of an earlier slice to this slice's folders."""
    for path in sorted(carried.glob("*")) if carried != slice_.out else []:
        if path.name in RESULTS and not (slice_.out / path.name).exists():
            shutil.copyfile(path, slice_.out / path.name)
    kept = {
        "figures": (sorted(slice_.out.glob("figures.tar.gz")), 1),
        "runs": (sorted(carried.glob("runs-*.tar.gz")), 2),
    }
    for name, (packed, depth) in kept.items():
        (slice_.work / name).mkdir(parents=True, exist_ok=True)
        print(f"{name}: {unpack(packed, slice_.work / name, depth)} files unpacked", flush=True)


def read_status(slice_: Slice) -> dict[str, Any]:
    """Return the status that earlier slices left. Exit if they ran on another type of device."""
    path = slice_.out / "status.json"
    status: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if status.setdefault("device", slice_.device) != slice_.device:
        sys.exit(
            f"{path} is of the device '{status['device']}', not '{slice_.device}': choose another --out."
        )
    return status


def run_stages(slice_: Slice, stages: list[Stage]) -> None:
    """Run the unfinished stages: first each within its share of the time, then in all remaining time."""
    least = (slice_.ends - time.time()) / 12  # seconds; start no stage in less
    for shared in (True, False):
        for stage in stages:
            state = slice_.state.get(stage.name, {}).get("state")
            tried = (
                state == FAILED and not shared
            )  # failed in an earlier slice or in the first round
            if state == DONE or tried or slice_.left < least:
                continue
            run_stage(
                slice_, stage, max(least, stage.share * slice_.left) if shared else slice_.left
            )


def run_stage(slice_: Slice, stage: Stage, seconds: float) -> None:
    """Run a stage for at most this many seconds, and record how it ended."""
    began = time.time()
    command = stage.command(slice_)
    print(f"{stage.name}: {' '.join(command[1:])}  (at most {seconds:.0f} s)", flush=True)
    with (slice_.out / "log.txt").open("a", encoding="utf-8") as log:
        print(f"\n== {stage.name}, {time.strftime('%Y-%m-%d %H:%M:%S')}", file=log, flush=True)
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=HERE.parent,
            env=environment(),
        )
        until = began + seconds
        while process.poll() is None and time.time() < until and not slice_.asked:
            time.sleep(0.2)
        stopped = process.poll() is None
        if stopped:
            stop(process, slice_.grace)
    code = process.returncode
    good = (0,) if stopped else stage.good  # a stopped command may have just finished
    state = DONE if code in good else STOPPED if stopped else FAILED
    before = slice_.state.get(stage.name, {})
    slice_.state[stage.name] = {
        "state": state,
        "code": code,
        "seconds": round(before.get("seconds", 0) + time.time() - began, 1),
        **progress(slice_.work / "runs" / stage.name),
    }
    slice_.write_status()
    print(f"{stage.name}: {state} {slice_.state[stage.name]}", flush=True)


def environment() -> dict[str, str]:
    """Return the environment of a stage, in which this repository's packages are found first."""
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def stop(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """Ask a command to save and stop; kill it and its workers if it still runs after `grace` seconds."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # including workers that hang
    process.wait()


def progress(runs: Path) -> dict[str, int]:
    """Return the number of runs that a stage has started, and the number that are finished."""
    begun = len(list(runs.glob("*/config.json")))
    return {"runs": begun, "finished": len(list(runs.glob("*/done.json")))} if begun else {}


@contextmanager
def stopped_by_signals(slice_: Slice) -> Any:
    """End the slice early, with everything saved, at Ctrl-C or SIGTERM."""

    def ask(signum: int, frame: Any) -> None:
        slice_.asked = True

    before = {signum: signal.signal(signum, ask) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def keep(slice_: Slice, archives: int) -> list[str]:
    """Write figures and unfinished runs beside the results; return a list of omitted parts."""
    figures = [path for path in sorted((slice_.work / "figures").glob("*")) if path.is_dir()]
    if figures:
        bundle(figures, slice_.work / "figures", slice_.out / "figures.tar.gz")
    begun = {name: known["state"] for name, known in slice_.state.items()}
    unfinished = {
        name: stage.weights
        for name, stage in STAGES.items()
        if begun.get(name) in (STOPPED, FAILED)
    }
    packed = [slice_.out / f"runs-{i + 1}.tar.gz" for i in range(archives)]
    return pack(slice_.work / "runs", unfinished, packed, LARGEST)


def machine(device: str) -> dict[str, Any]:
    """Return facts about the machine, and the versions of Python and torch."""
    gpu = (
        {"gpu": _torch().cuda.get_device_name(), "cuda": _torch().version.cuda}
        if device == "cuda"
        else {}
    )
    return {
        **gpu,
        "torch": version("torch"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def report(slice_: Slice, left_out: list[str]) -> None:
    """Print every stage's state, and files that are too large."""
    for name in STAGES:
        known = slice_.state.get(name, {"state": "not begun"})
        print(f"{name:12} " + ", ".join(f"{key} {value}" for key, value in known.items()))
    for sentence in left_out:
        print(f"left out, to be trained again on another machine: {sentence}")
    for path in sorted(slice_.out.iterdir()):
        large = " TOO LARGE to be carried" if path.stat().st_size > LARGEST else ""
        print(f"{path.name}: {path.stat().st_size / 2**20:.2f} MiB{large}")


if __name__ == "__main__":
    tyro.cli(main)
