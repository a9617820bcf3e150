"""The documents of a corpus without near-copies, split into training and held-out documents."""

import hashlib
import os
import stat
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.config import ConfigError, require, shown

STDLIB, SAMPLE = "stdlib", "sample"
"""The sources of the running Python's standard library, and the sources of the package `tasks` (about 190 kB)."""

LEFT_OUT = {
    "__pycache__",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "tests",
}
"""Directories of the standard library that hold installed packages, tests, or test data."""

LINE = 10
"""Minimum number of bytes of lines that are compared between files: shorter lines occur in every file."""
COPIED = 0.5
"""A file with more than this fraction of its lines in other files is a copy. Encoding tables, say, are copies."""
MOST_BYTES = 2**30
MOST_FILES = 1_000_000
HELD_OUT = 0.1
"""Maximum fraction of the bytes that is held out."""


@dataclass(frozen=True)
class Document:
    """A file: its path in the corpus, with "/" between directories, and its bytes."""

    path: str
    content: bytes

    @property
    def directory(self) -> str:
        """Directory of the file, or the file's own path if it has no directory."""
        return self.path.rpartition("/")[0] or self.path


@dataclass(frozen=True)
class Corpus:
    """Documents to train on and held-out documents, split by directory, in the order of their paths."""

    train: tuple[Document, ...]
    test: tuple[Document, ...]


def read(corpus: str) -> tuple[Document, ...]:
    """Return every non-empty document of "stdlib", "sample" or a folder, in the order of their paths.

    Raises `ConfigError` for a folder that does not exist, cannot be read, holds no text, or holds more than
    `MOST_BYTES` or `MOST_FILES`.
    """
    if corpus == STDLIB:
        root = Path(sysconfig.get_path("stdlib"))
        sources = (
            path for path in root.rglob("*.py") if not LEFT_OUT & set(path.relative_to(root).parts)
        )
        # _sysconfigdata differs between machines.
        paths = (path for path in sources if not path.name.startswith("_sysconfigdata"))
    elif corpus == SAMPLE:
        root = Path(__file__).parents[1]
        paths = root.rglob("*.py")
    else:
        root = Path(os.path.expanduser(corpus))
        require(
            os.path.isdir(root),
            f"TextTask.corpus is {shown(corpus)}, but must be '{STDLIB}', '{SAMPLE}' or a folder that exists.",
        )
        paths = (path for path in root.rglob("*") if "/." not in f"/{path.relative_to(root)}")
    try:
        files = _within(paths, corpus)
        documents = [
            Document(path.relative_to(root).as_posix(), path.read_bytes()) for path in files
        ]
    except OSError as error:
        raise ConfigError(
            f"TextTask.corpus is {shown(corpus)}, but {error.filename} cannot be read: {error.strerror}."
        ) from None
    documents = sorted(
        (document for document in documents if document.content.strip()), key=lambda d: d.path
    )
    require(bool(documents), f"TextTask.corpus is '{corpus}', but no file there holds any text.")
    return tuple(documents)


def _within(paths: Iterable[Path], corpus: str) -> list[Path]:
    """Return the regular files among paths. Raises `ConfigError` once they exceed `MOST_BYTES` or `MOST_FILES`."""
    files, size = [], 0
    for path in paths:
        try:
            facts = path.stat()
        except FileNotFoundError:  # a dangling link
            continue
        if stat.S_ISREG(facts.st_mode):
            files.append(path)
            size += facts.st_size
            require(
                size <= MOST_BYTES and len(files) <= MOST_FILES,
                f"TextTask.corpus is {shown(corpus)}, which holds more than {MOST_BYTES} bytes or {MOST_FILES} files: "
                "give a folder with less text.",
            )
    return files


def digest(documents: Sequence[Document]) -> str:
    """Return the SHA-256 of paths and contents."""
    of_all = hashlib.sha256()
    for document in documents:
        of_all.update(
            f"{document.path}\0{len(document.content)}\0".encode(errors="surrogateescape")
        )
        of_all.update(document.content)
    return of_all.hexdigest()


def split(documents: Sequence[Document]) -> Corpus:
    """Leave out copies, and hold out directories: up to a tenth of the bytes, but at least one directory.

    A file that shares more than half of its lines (without those shorter than `LINE`; if all are, it is one line) with
    files kept before it is left out as a near-copy. A short file whose lines stand in a longer later file is kept: its
    lines may be in training and held out. Directories are tried in the order of their names' SHA-256. Each is held out
    if it still fits into the tenth of the bytes. If none fits, the smallest one is held out. Raises `ConfigError` for
    a single file besides copies.
    """
    documents = distinct(documents)
    require(
        len(documents) > 1,
        "TextTask.corpus has a single file, but must have at least two: one is held out.",
    )
    groups: dict[str, list[Document]] = {}
    for document in documents:
        groups.setdefault(document.directory, []).append(document)
    if len(groups) == 1:  # then each file is a group of its own
        groups = {document.path: [document] for document in documents}
    sizes = {
        name: sum(len(document.content) for document in group) for name, group in groups.items()
    }
    room, held = HELD_OUT * sum(sizes.values()), set[str]()
    for name in sorted(
        groups, key=lambda name: hashlib.sha256(name.encode(errors="surrogateescape")).digest()
    ):
        if sizes[name] <= room:
            room -= sizes[name]
            held.add(name)
    held = held or {min(sizes, key=lambda name: (sizes[name], name))}
    test = [document for name in sorted(held) for document in groups[name]]
    train = [document for name in sorted(groups.keys() - held) for document in groups[name]]
    return Corpus(tuple(train), tuple(test))


def distinct(documents: Sequence[Document]) -> list[Document]:
    """Return the documents that share at most half of their lines with those kept before them."""
    earlier_lines: set[bytes] = set()
    originals: list[Document] = []
    for document in documents:
        lines = {
            line for line in map(bytes.strip, document.content.splitlines()) if len(line) >= LINE
        } or {document.content.strip()}
        if len(lines & earlier_lines) <= COPIED * len(lines):
            originals.append(document)
            earlier_lines |= lines
    return originals
