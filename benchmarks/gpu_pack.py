"""Pack unfinished work into a few small archives, so that a slice on another bare machine can
continue it.
"""

import re
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

SMALL = ("config.json", "metrics.csv", "done.json", "diverged.json")
CHECKPOINT = re.compile(r"step-(\d+)\.safetensors")
HEADER = 1024  # bytes of a file's tar header and padding


def pack(root: Path, stages: dict[str, bool], archives: list[Path], limit: int) -> list[str]:
    """Write the runs of unfinished stages to archives of at most `limit` bytes each; return a list
    of omitted parts.

    `stages`: the folders under `root`, and whether their figures read the weights of finished runs.
    An unfinished run is packed with its config, metrics and last checkpoint, including the
    optimiser's state. A finished run is packed with config, metrics and, if its figure reads them,
    the last weights. A run whose checkpoint does not fit is left out and trained again. Finished
    runs come first, then the runs with the most steps.
    """
    room, taken, left_out = [int(0.98 * limit)] * len(archives), [[] for _ in archives], []
    runs = [
        (stage, path.parent) for stage in stages for path in (root / stage).glob("*/config.json")
    ]
    for stage, run in sorted(runs, key=lambda found: _order(found[1])):
        done = (run / "done.json").exists()
        files = [run / name for name in SMALL if (run / name).exists()]
        files += _last_checkpoint(run, with_optimizer=not done) if stages[stage] or not done else []
        sizes = {path: _packed(path) for path in files}
        placed = _placed(sizes, room)
        if placed is None:
            left_out.append(
                f"{stage}/{run.name}: its {sum(sizes.values()) / 2**20:.1f} MiB do not fit"
            )
            continue
        for path, i in placed.items():
            taken[i].append(path)
            room[i] -= sizes[path]
    for archive, paths in zip(archives, taken, strict=True):
        archive.unlink(missing_ok=True)
        if paths:
            bundle(paths, root, archive)
            assert archive.stat().st_size <= limit, (
                f"{archive} has {archive.stat().st_size} bytes, more than {limit}"
            )
    return left_out


def _placed(sizes: dict[Path, int], room: list[int]) -> dict[Path, int] | None:
    """Return the archive of each file: the largest file first, into the first with room; None if
    one does not fit.
    """
    left, placed = list(room), {}
    for path, size in sorted(sizes.items(), key=lambda item: -item[1]):
        fits = [i for i, space in enumerate(left) if size <= space]
        if not fits:
            return None
        placed[path] = fits[0]
        left[fits[0]] -= size
    return placed


def unpack(archives: list[Path], root: Path, depth: int) -> int:
    """Unpack archives of `pack`, except folders `depth` below the root that already exist. Return
    the file count.
    """
    there = {path.relative_to(root) for path in root.glob("/".join(["*"] * depth))}
    written = 0
    for archive in archives:
        with tarfile.open(archive) as file:
            wanted = [
                m
                for m in file.getmembers()
                if m.isfile() and Path(*Path(m.name).parts[:depth]) not in there
            ]
            file.extractall(root, wanted, filter="data")
            written += len(wanted)
    return written


def bundle(paths: Iterable[Path], root: Path, archive: Path) -> None:
    """Write files and whole folders to an archive."""
    with tarfile.open(archive, "w:gz") as file:
        for path in paths:
            file.add(path, str(path.relative_to(root)))


def _order(run: Path) -> tuple[bool, int, str]:
    """Return a sort key: finished runs first, then by the number of steps."""
    return not (run / "done.json").exists(), -max(_steps(run), default=0), run.name


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


def _packed(path: Path) -> int:
    """Return the approximate number of bytes that a file takes in an archive."""
    return len(zlib.compress(path.read_bytes(), 6)) + HEADER
