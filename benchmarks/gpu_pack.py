"""Unfinished work as one small archive: what a slice on another bare machine needs to go on."""

import io
import re
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

SMALL = ("config.json", "metrics.csv", "done.json", "diverged.json")
CHECKPOINT = re.compile(r"step-(\d+)\.safetensors")
HEADER = 1024  # bytes of a tar's header and padding


def pack(root: Path, stages: dict[str, bool], archive: Path, limit: int) -> list[str]:
    """Write the runs of unfinished stages to an archive of at most `limit` bytes; return what is left out, in words.

    `stages`: the folders under `root`, and whether their figures read the weights of finished runs. Of a run go its
    config and metrics, and its last checkpoint: with the optimiser's state if it is not finished, the weights alone if
    it is and they are read. A run whose checkpoint does not fit goes without it, to be trained again, and one that
    is finished is left out with it. Finished runs come first, then those that are furthest.
    """
    room, taken, left_out = int(0.98 * limit), [], []
    runs = [(stage, path.parent) for stage in stages for path in sorted((root / stage).glob("*/config.json"))]
    for stage, run in sorted(runs, key=lambda found: _order(found[1])):
        small = [run / name for name in SMALL if (run / name).exists()]
        done = (run / "done.json").exists()
        tensors = _last_checkpoint(run, with_optimizer=not done) if stages[stage] or not done else []
        whole, size = [*small, *tensors], _packed(small) + _packed(tensors)
        if size <= room:
            taken, room = taken + whole, room - size
        elif tensors:
            left_out.append(f"{stage}/{run.name}: its checkpoint of {size / 2**20:.0f} MiB does not fit")
        else:
            left_out.append(f"{stage}/{run.name}: no room")
    archive.unlink(missing_ok=True)
    if taken:
        with tarfile.open(archive, "w:gz") as file:
            for path in taken:
                file.add(path, str(path.relative_to(root)))
        assert archive.stat().st_size <= limit, f"{archive} has {archive.stat().st_size} bytes, more than {limit}"
    return left_out


def unpack(archive: Path, root: Path) -> int:
    """Unpack an archive of `pack`; files that are there already stay as they are. Returns how many were written."""
    written = 0
    with tarfile.open(archive) as file:
        for member in file.getmembers():
            if member.isfile() and not (root / member.name).exists():
                file.extract(member, root, filter="data")
                written += 1
    return written


def bundle(folders: Iterable[Path], root: Path, archive: Path) -> None:
    """Write whole folders to an archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as file:
        for folder in folders:
            file.add(folder, str(folder.relative_to(root)))
    archive.write_bytes(content.getvalue())


def _order(run: Path) -> tuple[bool, int]:
    """Finished runs first, then by how far they are."""
    return not (run / "done.json").exists(), -max(_steps(run), default=0)


def _steps(run: Path) -> list[int]:
    found = (CHECKPOINT.fullmatch(path.name) for path in (run / "checkpoints").glob("*"))
    return [int(match[1]) for match in found if match]


def _last_checkpoint(run: Path, with_optimizer: bool) -> list[Path]:
    steps = _steps(run)
    if not steps:
        return []
    names = [
        f"step-{max(steps)}.safetensors",
        *([f"step-{max(steps)}.optimizer.safetensors"] if with_optimizer else []),
    ]
    return [path for name in names if (path := run / "checkpoints" / name).exists()]


def _packed(paths: list[Path]) -> int:
    return sum(len(zlib.compress(path.read_bytes(), 6)) + HEADER for path in paths)
