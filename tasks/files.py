"""Atomic files. A reader sees the old content or the new, never a part.

`ihlab.storage.files` writes folders and locks with them.
"""

import fcntl
import glob
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, force it to disk, then rename it into place.

    Partial files of `path` that killed processes left are removed first. Raises `OSError` that
    names `path` if the system does not allow it (a full disk, say). Then `path` is unchanged.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_partial(path.parent, glob.escape(path.name))
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        held = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            lock(held)
            write(aside)
            force_to_disk(aside)
            os.replace(aside, path)
            with suppress(OSError):  # force the new name to disk too; not every file system can
                force_to_disk(path.parent)
        finally:
            aside.unlink(missing_ok=True)
            os.close(held)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in errors of the system.

    A full disk's error names no file, and others name the temporary file, which the user does not
    know. Libraries in Rust raise errors of their own, with the number of the system's error in the
    text.
    """
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None)
        if in_text := re.search(r"\(os error (\d+)\)", str(error)):
            number = int(in_text[1])
        if number is None:  # not an error of the system
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def lock(descriptor: int) -> bool:
    """Lock an open partial file or folder, if nobody holds it. The kernel releases it when the
    process ends.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or the file system has no locks
        return False
    return True


def force_to_disk(path: Path) -> None:
    """Force a file's content, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_partial(folder: Path, name: str) -> None:
    """Remove partial files and folders that killed processes left in a folder. `name`: a glob of
    what they wrote.

    Those that a living process writes are kept: it holds their lock. A link is kept, because nobody
    locks through it.
    """
    for path in folder.glob(f".{name}.*.partial"):
        try:  # without waiting for the other end of a FIFO
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # a link, or renamed by now
            continue
        try:
            if lock(descriptor):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block for the same folder, which is made if new. No
    file is left there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # at once, although a forked process may hold the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
