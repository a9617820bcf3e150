"""Atomic files and locks. A reader sees the old content or the new, never a part. A lock has one holder."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tasks.config import ConfigError, require, shown


class TakenError(ConfigError):
    """Another process holds a lock."""


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, force it to disk, then rename it into place.

    Raises `OSError` that names `path` if the system does not allow it (a full disk, say). Then `path` is unchanged.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(aside)
            _force_to_disk(aside)
            os.replace(aside, path)
            with suppress(OSError):  # force the new name to disk too; not every file system can
                _force_to_disk(path.parent)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None:  # not an error of the system
            raise
        # A full disk's error names no file, and others name the temporary file, which the user does not know.
        raise OSError(error.errno, error.strerror, str(path)) from error


def as_folder(what: str, folder: Any) -> Path:
    """Return the path of a folder, which need not exist.

    Raises `ConfigError` for anything but a text or a path, for a path that no folder can have, and for a file's path.
    """
    require(isinstance(folder, str | Path), f"{what} is {shown(folder)}, but must be the path of a folder.")
    path = Path(folder)
    require("\0" not in str(path), f"{what} is {shown(str(path))}, which has a null character.")
    there = next((above for above in (path, *path.parents) if os.path.lexists(above)), None)
    require(there is None or os.path.isdir(there), f"{what} is {shown(str(path))}, but {there} is not a folder.")
    return path


def require_writable(what: str, folder: Path) -> None:
    """Raise `ConfigError` unless files can be written to a folder, which need not exist yet. No file is left there.

    Raise it too if a new folder at the top of the file system would be needed: then `what`, the setting that names the
    folder, is likely misspelt.
    """
    said = f"{what} is {str(folder)!r}, but"
    there = next(above for above in (folder.absolute(), *folder.absolute().parents) if above.exists())
    require(there.is_dir(), f"{said} {there} is a file.")
    require(
        there.parent != there or there == folder.absolute(),
        f"{said} that would be a new folder at the top of the file system: create it first, if you mean it.",
    )
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ConfigError(f"{said} nothing can be written to {there} ({error.strerror}).") from None


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_partial(folder: Path, name: str) -> None:
    """Remove partial files that killed processes left in a folder; `name` is a glob of the files they were writing.

    The caller must hold the lock of these files: otherwise another process may be writing them.
    """
    for path in folder.glob(f".{name}.*.partial"):
        path.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove the partial files of processes that have ended, for a folder without a lock."""
    for path in folder.glob(".*.partial"):
        process = path.name.split(".")[-2]
        if process.isdigit():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                path.unlink(missing_ok=True)
            except OSError:  # it runs, as another user
                pass


def require_no_link(path: Path) -> None:
    """Raise `ConfigError` for a symbolic link: a write through it would change a file elsewhere."""
    require(
        not path.is_symlink(),
        f"{path} is a symbolic link, and nothing is written through links: replace it with a real one.",
    )


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""
    write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))  # type: ignore[arg-type]


def append_text(path: Path, text: str, size: int) -> int:
    """Append text to a file of `size` bytes, force it to disk, and return the new size.

    Bytes beyond `size`, from a killed process, are cut off first. Links are not followed. Raises `OSError` that names
    `path` if the system does not allow it. Then the file is cut back to `size` bytes, if the system allows that.
    """
    content = text.encode()
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        try:
            os.ftruncate(file, size)
            os.lseek(file, 0, os.SEEK_END)
            written = os.write(file, content)
            if written < len(content):  # a full disk, or a limit
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(file, size)
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(file)
    return size + written


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, indented, with a final newline."""
    write_text(path, json.dumps(content, indent=2) + "\n")


@contextmanager
def locked(path: Path, taken: str, wait: float = 0.0) -> Iterator[os.stat_result]:
    """Hold the lock file at `path`, made if new, and yield its identity for `is_file`.

    The kernel releases the lock when the process dies; worker processes do not inherit it. Raises `TakenError` with the
    message `taken` if another process still holds it after `wait` seconds.
    """
    from filelock import FileLock, Timeout  # imports asyncio, which commands that lock nothing need not wait for

    try:  # raise if the file system cannot lock: the soft fallback would outlive a killed process
        held = FileLock(path, fallback_to_soft=False).acquire(timeout=wait)
    except Timeout:
        raise TakenError(taken) from None
    with held:
        yield path.stat()


def is_file(path: Path, known: os.stat_result) -> bool:
    """Return whether the file at `path` is still the known one, neither removed nor replaced."""
    try:
        return os.path.samestat(path.stat(), known)
    except OSError:
        return False
