"""Atomic files: a reader sees the old content or the new, never half of either."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, force it to disk, then rename it into place.

    Raises `OSError` that names `path` if the system does not allow it (a full disk, say); `path` is then as it was.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(aside)
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None:  # no system's
            raise
        # A full disk's error names no file, and others name the file beside, which no user knows.
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""
    write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))  # type: ignore[arg-type]


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, indented, with a final newline."""
    write_text(path, json.dumps(content, indent=2) + "\n")
