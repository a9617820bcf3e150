"""Read untrusted files. Only this module and `ihlab.storage.model_folder` open files that somebody
else may have made.

It reads run folders, their tables and tensors, and sweep files, and trusts none of them. It accepts
only regular files of limited size, UTF-8, JSON of limited size and depth, and weights in
safetensors. Each error is one sentence that names the file. `ihlab.storage.files` writes files, and
follows no links inside a run folder.
"""

import json
import math
import stat
import tomllib
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ihlab.storage.files import write_json
from tasks.config import ConfigError, require, shown

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 2**28
"""Largest size of a table, and of a vocabulary, in bytes."""
MOST_JSON = 2**20
"""Largest size in bytes of a run folder's JSON, and of a sweep file. `ihlab runs` reads the JSON of
every run.
"""
MOST_DEPTH = 32
MOST_DIGITS = 20

DONE, DIVERGED, UNFINISHED = "done", "diverged", "unfinished"
"""The status of a stored run in tables of runs."""

SEAL = "crc32"
"""The key of a summary's checksum, which covers its other fields."""


def present(path: Path) -> bool:
    """Return whether anything exists at this path. A broken symbolic link counts: it is reported as
    damage later.

    Raises `ConfigError` if this user may not look into the folder.
    """
    try:
        path.lstat()
    except PermissionError as error:
        raise ConfigError(f"{path}: {error.strerror}.") from None
    except (OSError, ValueError):
        return False
    return True


def require_regular(path: Path) -> int:
    """Return a file's size in bytes. Raises `ConfigError` for anything but a regular file, without
    opening it.

    Opening a FIFO would block, and reading a device might never end.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({_reason(error)}).") from None
    require(stat.S_ISREG(status.st_mode), f"{path} cannot be read (it is not a regular file).")
    return status.st_size


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most `most` bytes. Raises `ConfigError` if it is larger, empty, or cannot
    be read.
    """
    size = require_regular(path)
    require(size > 0, f"{path} is empty.")
    require(size <= most, f"{path} has {size} bytes, but must have at most {most}.")
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


def read_json(path: Path, most: int = MOST_JSON, most_digits: int = MOST_DIGITS) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes.

    Raises `ConfigError` for a file that cannot be read or is not a JSON object, for nesting deeper
    than `MOST_DEPTH`, for an integer of more than `most_digits` digits, for a decimal beyond the
    range of floats, for a key that an object has twice, and for text that is not Unicode.
    """

    def whole(digits: str) -> int:
        require(len(digits) <= most_digits, f"{path} holds a whole number of {len(digits)} digits.")
        return int(digits)

    def decimal(digits: str) -> float:
        require(
            math.isfinite(float(digits)),
            f"{path} holds {shown(digits)}, but a number is at most 1.8e308.",
        )
        return float(digits)

    try:
        text = as_text(read_bytes(path, most), path)
        content = json.loads(
            text, parse_int=whole, parse_float=decimal, object_pairs_hook=partial(one_by_key, path)
        )
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON ({error}).") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None
    require(isinstance(content, dict), f"{path} holds no JSON object: it must begin with '{{'.")
    _check(content, path, MOST_DEPTH)
    return content


def one_by_key(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's key-value pairs as a dict. Raises `ConfigError` for a key that occurs
    twice.
    """
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ConfigError(
            f"{path} has the key {shown(twice)} twice in one object, but must have it once."
        )
    return by_key


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of at most `MOST_JSON` bytes. Raises `ConfigError` if it cannot be read or
    is not TOML.
    """
    text = as_text(read_bytes(path, MOST_JSON), path)
    try:
        content = tomllib.loads(text)
    except ValueError as error:  # not TOML, or a number with too many digits
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None
    _check(content, path, MOST_DEPTH)
    return content


def read_tensors(path: Path, tensors: bool = True) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return the tensors of a safetensors file (none if `tensors` is False) and its metadata.

    Raises `ConfigError` for a file that is not safetensors, is truncated, or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    require_regular(path)
    try:
        path.open("rb").close()  # safetensors would report an unreadable file as missing
        with safe_open(path, framework="pt" if tensors else "np") as file:  # metadata need no torch
            names = file.keys() if tensors else ()
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except PermissionError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}).") from None


def _check(value: Any, path: Path, deeper: int) -> None:
    """Raise for JSON that is nested too deeply, and for text that cannot be encoded (half of a
    surrogate pair).
    """
    require(deeper > 0, lambda: f"{path} is nested too deeply.")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{path} holds text that is not Unicode.") from None
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name, path, deeper)
            _check(item, path, deeper - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, path, deeper - 1)


def write_summary(path: Path, content: Mapping[str, Any], owner: str) -> None:
    """Write a JSON object atomically, with a checksum of its fields and `owner` (a run's config
    digest).
    """
    write_json(path, {**content, SEAL: _checksum(content, owner)})


def read_summary(
    path: Path, numbers: Mapping[str, type], owner: str | None
) -> dict[str, Any] | None:
    """Read the file of `write_summary`; None if there is no file. Older files without a checksum
    are read too.

    `owner`: the string given to `write_summary`. If it is None (unknown), the checksum is not
    checked.

    Raises `ConfigError` as `read_json` does, for a field of `numbers` (a type, int or float, per
    name) that is missing or of another type, and for a checksum that does not match.
    """
    if not present(path):
        return None
    content = read_json(path)
    seal = content.pop(SEAL, None)
    for name, kind in numbers.items():
        value = content.get(name)
        right = isinstance(value, int | kind) and not isinstance(value, bool)
        what = "a whole number" if kind is int else "a number"
        require(right, f"{path}: {name} is {shown(value)}, but must be {what}.")
    intact = owner is None or seal is None or seal == _checksum(content, owner)
    require(intact, f"{path} is damaged: it has another checksum than when it was written.")
    return content


def _checksum(content: Mapping[str, Any], owner: str) -> str:
    return f"{zlib.crc32(json.dumps([owner, content], sort_keys=True).encode()):08x}"


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
