"""Stored files, read as if anything could be in them: regular files of a sane size, UTF-8, JSON of a sane shape."""

import json
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ihlab.files import write_json
from tasks.config import ConfigError, require

MOST_BYTES = 2**28
MOST_DEPTH = 32
MOST_DIGITS = 20

DONE, DIVERGED, UNFINISHED = "done", "diverged", "unfinished"
"""How far a stored run is, as tables of runs say it."""

SEAL = "crc32"
"""The key of a summary's checksum over its other fields."""


def present(path: Path) -> bool:
    """Return whether anything has this path: a symbolic link to nothing has, and is damage.

    Raises `ConfigError` where this user may not know, in a folder that is closed to others.
    """
    try:
        path.lstat()
    except PermissionError as error:
        raise ConfigError(f"{path}: {error.strerror}.") from None
    except (OSError, ValueError):
        return False
    return True


def require_regular(path: Path) -> int:
    """Return a file's size in bytes. Raises `ConfigError` for anything but a regular file, without opening it.

    A FIFO would never answer, and a device never end.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({_reason(error)}).") from None
    require(stat.S_ISREG(found.st_mode), f"{path} cannot be read (it is not a regular file).")
    return found.st_size


def read_bytes(path: Path) -> bytes:
    """Read a file of at most `MOST_BYTES`. Raises `ConfigError` for one that is larger, empty or cannot be read."""
    size = require_regular(path)
    require(size > 0, f"{path} is empty.")
    require(size <= MOST_BYTES, f"{path} has {size} bytes, but must have at most {MOST_BYTES}.")
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({_reason(error)}).") from None


def as_text(content: bytes, path: Path) -> str:
    """Decode the content of a file. Raises `ConfigError` if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises `ConfigError` for a file that cannot be read or is not a JSON object, for nesting deeper than `MOST_DEPTH`,
    for a whole number of more than `MOST_DIGITS` digits, and for text that is not Unicode.
    """

    def whole(digits: str) -> int:
        require(len(digits) <= MOST_DIGITS, f"{path} holds a whole number of {len(digits)} digits.")
        return int(digits)

    try:
        content = json.loads(as_text(read_bytes(path), path), parse_int=whole)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON ({error}).") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None
    require(isinstance(content, dict), f"{path} holds no JSON object: it must begin with '{{'.")
    _check(content, path, MOST_DEPTH)
    return dict(content)


def _check(value: Any, path: Path, deeper: int) -> None:
    """Refuse JSON that is nested too deeply, and text that cannot be written again: half of a surrogate pair."""
    require(deeper > 0, f"{path} is nested too deeply.")
    if isinstance(value, str):
        require(
            all(not "\ud800" <= character <= "\udfff" for character in value), f"{path} holds text that is not Unicode."
        )
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name, path, deeper)
            _check(item, path, deeper - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, path, deeper - 1)


def write_summary(path: Path, content: Mapping[str, Any], owner: str) -> None:
    """Write a JSON object with a checksum over it and its owner, atomically."""
    write_json(path, {**content, SEAL: _checksum(content, owner)})


def read_summary(path: Path, numbers: Mapping[str, type], owner: str | None) -> dict[str, Any] | None:
    """Read what `write_summary` wrote, or None if there is nothing. One from before there were checksums is read too.

    `owner`: as it was written; None if it is not known, and the checksum with it.

    Raises `ConfigError` as `read_json` does, for a field of `numbers` (its names, and int or float) that is missing or
    no such number, and for another content than was written.
    """
    if not present(path):
        return None
    content = read_json(path)
    seal = content.pop(SEAL, None)
    for name, kind in numbers.items():
        given = content.get(name)
        right = isinstance(given, int | kind) and not isinstance(given, bool)
        what = "a whole number" if kind is int else "a number"
        require(right, f"{path}: {name} is {given!r}, but must be {what}.")
    intact = owner is None or seal is None or seal == _checksum(content, owner)
    require(intact, f"{path} is damaged: it has another checksum than when it was written.")
    return content


def _checksum(content: Mapping[str, Any], owner: str) -> str:
    return f"{zlib.crc32(json.dumps([owner, content], sort_keys=True).encode()):08x}"


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
