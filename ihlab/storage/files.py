"""Atomic files and folders, and locks. A reader sees the old content or the new, never a part. A
lock has one holder.
"""

import errno
import filecmp
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tasks.config import ConfigError, require, shown
from tasks.files import force_to_disk, lock, naming, remove_partial, write_atomically

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk, or of a user's part of it, that is full."""


class TakenError(ConfigError):
    """Another process holds a lock."""


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a hidden folder inside `folder`, force its files to disk, then move them
    into place.

    If it is killed, the same call can be repeated: `folder` may hold files with the content that
    `write` gives them. Raises `ConfigError` for any other file in `folder`, and `OSError` that
    names `folder` if the system does not allow it. `write` makes no folders. Files get the mode of
    new files, also if a library gave them another.
    """
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial(folder, "files")
        aside = folder / f".files.{secrets.token_hex(4)}.partial"
        aside.mkdir()
        held = os.open(aside, os.O_RDONLY)
        try:
            lock(held)
            write(aside)
            for path in folder.iterdir():
                new = aside / path.name
                same = path.is_file() and new.is_file() and filecmp.cmp(path, new, shallow=False)
                require(
                    same or path == aside,
                    f"{folder} is not empty: give a new or an empty folder. It holds {path.name}.",
                )
            for path in sorted(aside.iterdir()):
                path.chmod(stat.S_IMODE(os.fstat(held).st_mode) & 0o666)
                force_to_disk(path)
                os.replace(path, folder / path.name)
            with suppress(OSError):
                force_to_disk(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            os.close(held)


def as_folder(what: str, folder: Any) -> Path:
    """Return the path of a folder, which need not exist.

    Raises `ConfigError` for anything but a str or `Path`, for a path that no folder can have (with
    a null character, or below a file), and for a file's path.
    """
    require(
        isinstance(folder, str | Path),
        f"{what} is {shown(folder)}, but must be the path of a folder.",
    )
    path = Path(folder)
    require("\0" not in str(path), f"{what} is {shown(str(path))}, which has a null character.")
    there = next((above for above in (path, *path.parents) if os.path.lexists(above)), None)
    require(
        there is None or os.path.isdir(there),
        f"{what} is {shown(str(path))}, but {there} is not a folder.",
    )
    return path


def require_writable(what: str, folder: Path) -> None:
    """Raise `ConfigError` unless files can be written to a folder, which need not exist yet. No
    file is left there.

    Raise it too if a new folder at the top of the file system would be needed: then `what`, the
    setting that names the folder, is likely misspelt. Raises `OSError` if the disk is full.
    """
    said = f"{what} is {str(folder)!r}, but"
    there = next(
        above for above in (folder.absolute(), *folder.absolute().parents) if above.exists()
    )
    require(there.is_dir(), f"{said} {there} is a file.")
    require(
        there.parent != there or there == folder.absolute(),
        f"{said} that would be a new folder at the top of the file system: create it first, if you mean it.",
    )
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        if error.errno in FULL:  # no fault of the setting
            raise OSError(error.errno, error.strerror, str(there)) from None
        raise ConfigError(f"{said} nothing can be written to {there} ({error.strerror}).") from None


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

    Bytes beyond `size`, from a killed process, are cut off first. Links are not followed. Raises
    `OSError` that names `path` if the system does not allow it. Then the file is cut back to `size`
    bytes, if the system allows that.
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

    The kernel releases the lock when the process dies; worker processes do not inherit it. Raises
    `TakenError` with the message `taken` if another process still holds it after `wait` seconds.
    """
    # It imports asyncio, which commands that lock nothing need not wait for.
    from filelock import FileLock, Timeout

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
