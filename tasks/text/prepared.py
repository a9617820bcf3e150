"""A corpus as token ids. The files are outside the repository, prepared once and read through memory maps."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64, UInt16

from tasks.config import require
from tasks.text.corpus import Corpus, Document, digest, read, split
from tasks.text.mixes import mixed, parsed

Split = Literal["train", "test"]
BYTES = 256
"""Size of the vocabulary of plain bytes."""
MOST_IDS = 2**16

RULE = 1
"""Version of the rule that splits and tokenizes a corpus: part of the cache's name."""


@dataclass(frozen=True)
class Part:
    """The ids of one side of a corpus, its documents one after another, and the start and end of each document."""

    ids: UInt16[np.ndarray, " token"]
    bounds: Int64[np.ndarray, " bound"]


@dataclass(frozen=True)
class Prepared:
    """A corpus as token ids.

    - `sha256`: digest of the files as they were read, and of the rule that changes them (`tasks.text.mixes`);
    - `vocabulary`: the bytes of each id;
    - `train`, `test`: the two sides.
    """

    sha256: str
    vocabulary: tuple[bytes, ...]
    train: Part
    test: Part


@lru_cache(maxsize=8)
def prepare(corpus: str, vocab_size: int) -> Prepared:
    """Return a corpus as ids of a byte-level BPE of size `vocab_size`, trained on its training side, or as bytes (256).

    A corpus that was prepared before is read from the cache (`IHLAB_CACHE`, or the user's cache). Its folder is named
    by a hash of the content, so that corpora never collide. The folder is written atomically, even by several writers.

    Raises `ConfigError` for a corpus that cannot be read (`tasks.text.corpus`), has an unknown rule, is too small for
    the vocabulary, or has a file that is not UTF-8 (plain bytes accept any file).
    """
    source, rule = parsed(corpus)
    documents = read(source)
    sha256 = digest(documents, rule)
    folder = cache() / f"text-{RULE}-{sha256[:20]}-{vocab_size}"
    stored = _load(folder, sha256)
    if stored is None:
        _store(folder, sha256, *_encoded(split(mixed(documents, rule)), vocab_size))
        stored = _load(folder, sha256)
    require(stored is not None, f"{folder} was written, but cannot be read: remove it.")
    assert stored is not None
    return stored


def encode(text: str, vocabulary: Sequence[bytes]) -> Int64[np.ndarray, " token"]:
    """Return the ids of a text by a vocabulary of `prepare`.

    BPE merges the neighbours whose union has the lowest id, until none has one: ids are in the order of the merges.
    """
    from tokenizers import pre_tokenizers

    id_of = {token: i for i, token in enumerate(vocabulary)}
    if len(id_of) == BYTES:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    ids: list[int] = []
    for _, (start, end) in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text):
        parts = [bytes([byte]) for byte in text[start:end].encode()]
        while True:
            merged = [id_of.get(one + other, len(vocabulary)) for one, other in pairwise(parts)]
            first = min(merged, default=len(vocabulary))
            if first == len(vocabulary):
                break
            at = merged.index(first)
            parts[at : at + 2] = [vocabulary[first]]
        ids += [id_of[part] for part in parts]
    return np.array(ids, np.int64)


def cache() -> Path:
    """Return the folder of prepared corpora: `IHLAB_CACHE`, or `ihlab` in the user's cache.

    Raises `ConfigError` for a user without a home folder, as in some containers.
    """
    if own := os.environ.get("IHLAB_CACHE"):
        return Path(own)
    users = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    require(not users.startswith("~"), "This user has no home for prepared corpora: set IHLAB_CACHE to a folder.")
    return Path(users) / "ihlab"


Sides = dict[str, list[np.ndarray]]


def _encoded(corpus: Corpus, vocab_size: int) -> tuple[list[bytes], Sides]:
    """Return the vocabulary and the ids of each document on both sides."""
    sides: dict[str, Sequence[Document]] = {"train": corpus.train, "test": corpus.test}
    if vocab_size == BYTES:
        as_bytes = {name: [np.frombuffer(d.content, np.uint8) for d in side] for name, side in sides.items()}
        return [bytes([byte]) for byte in range(BYTES)], as_bytes
    texts = {name: [_text(document) for document in side] for name, side in sides.items()}
    tokenizer = _trained(texts["train"], vocab_size)
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    byte_of = byte_of_character()
    vocabulary = [bytes(byte_of[character] for character in token) for token, _ in by_id]
    encoded = {name: [np.array(e.ids) for e in tokenizer.encode_batch(side)] for name, side in texts.items()}
    return vocabulary, encoded


def _text(document: Document) -> str:
    try:
        return document.content.decode()
    except UnicodeDecodeError:
        require(False, f"{document.path} of the corpus is not UTF-8: it can only be read as bytes (vocab_size=256).")
        raise


def _trained(texts: Sequence[str], vocab_size: int) -> Any:
    """Return a byte-level BPE tokenizer (Sennrich et al. 2016, arXiv 1508.07909, over GPT-2's 256 byte characters)."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    found = tokenizer.get_vocab_size()
    require(
        found == vocab_size,
        f"TextTask.vocab_size is {vocab_size}, but the corpus has only {found} byte pairs that occur twice.",
    )
    return tokenizer


def byte_of_character() -> dict[str, int]:
    """Return the byte that each character of GPT-2's byte-level alphabet stands for.

    Printable Latin-1 characters stand for themselves. Characters from U+0100 on stand for the other bytes, in order.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(BYTES + i): byte for i, byte in enumerate(others)}


def _store(folder: Path, sha256: str, vocabulary: list[bytes], sides: Sides) -> None:
    """Write a temporary folder and rename it to `folder`. An intact existing folder is kept, a damaged one replaced."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError:
        require(False, f"{folder.parent} cannot be written: set IHLAB_CACHE to a folder that can.")
    try:
        for name, encoded in sides.items():
            np.save(beside / f"{name}.npy", np.concatenate(encoded).astype(np.uint16))
            np.save(beside / f"{name}_bounds.npy", np.cumsum([0, *map(len, encoded)]))
        told = {"sha256": sha256, "vocabulary": [token.hex() for token in vocabulary]}
        (beside / "corpus.json").write_text(json.dumps(told), encoding="utf-8")
        if _load(folder, sha256) is None:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                beside.rename(folder)
            except OSError:  # another process was first
                require(folder.is_dir(), f"{folder} cannot be written: set IHLAB_CACHE to a folder that can.")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _load(folder: Path, sha256: str) -> Prepared | None:
    """Return the contents of a cache folder, or None if it is missing, damaged or from another corpus."""
    try:
        told = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        train, test = (
            Part(np.load(folder / f"{name}.npy", mmap_mode="r"), np.load(folder / f"{name}_bounds.npy"))
            for name in ("train", "test")
        )
        vocabulary = tuple(bytes.fromhex(token) for token in told["vocabulary"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = told["sha256"] == sha256 and all(len(part.ids) == part.bounds[-1] for part in (train, test))
    return Prepared(sha256, vocabulary, train, test) if whole else None
