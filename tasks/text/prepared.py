"""A corpus as token ids, prepared once and kept in a file outside the repository."""

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt16

from tasks.config import ConfigError, require
from tasks.files import remove_partial, write_atomically
from tasks.text.corpus import Corpus, Document, digest, read, split

SIDES = ("train", "test")
BYTES = 256
"""Size of the vocabulary of plain bytes."""
MOST_IDS = 2**16

RULE = 3
"""Version of the rule that splits and tokenizes a corpus: part of the cache's name."""


@dataclass(frozen=True)
class Part:
    """Ids of the training or the held-out documents, one after another, and the start and end of each document."""

    ids: UInt16[np.ndarray, " token"]
    bounds: Int64[np.ndarray, " bound"]


@dataclass(frozen=True)
class Prepared:
    """A corpus as token ids.

    - `sha256`: digest of the files as they were read;
    - `vocabulary`: the bytes of each id;
    - `train`, `test`: the training documents and the held-out documents.
    """

    sha256: str
    vocabulary: tuple[bytes, ...]
    train: Part
    test: Part


@lru_cache(maxsize=8)
def prepare(corpus: str, vocab_size: int) -> Prepared:
    """Return a corpus as token ids of a byte-level BPE trained on its training documents, or as bytes (vocab_size 256).

    A corpus that was prepared before is read from the cache (`IHLAB_CACHE`, or the user's cache). Its file is named
    by a hash of the content, so that corpora never collide. It is written atomically, even by several writers.

    Raises `ConfigError` for a corpus that cannot be read (`tasks.text.corpus`), is too small for the vocabulary, or has
    a file that is not UTF-8 (plain bytes accept any file).
    """
    documents = read(corpus)
    sha256 = digest(documents)
    file = cache() / f"text-{RULE}-{sha256[:20]}-{vocab_size}.npz"
    prepared = _load(file, sha256)
    if prepared is None:
        prepared = _encoded(sha256, split(documents), vocab_size)
        _store(file, prepared)
    return prepared


def encode(text: str, vocabulary: Sequence[bytes]) -> Int64[np.ndarray, " token"]:
    """Tokenize a text with a vocabulary that `prepare` returned.

    BPE joins two neighbouring tokens into one token of the vocabulary, the one with the lowest id
    first (ids are in merge order), until no two neighbours form a token.
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
            place = merged.index(first)
            parts[place : place + 2] = [vocabulary[first]]
        ids += [id_of[token] for token in parts]
    return np.array(ids, np.int64)


def cache() -> Path:
    """Return the folder of prepared corpora: `IHLAB_CACHE`, or `ihlab` in the user's cache.

    Raises `ConfigError` for a user without a home folder, as in some containers.
    """
    if folder := os.environ.get("IHLAB_CACHE"):
        return Path(folder)
    users = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    require(
        not users.startswith("~"),
        "This user has no home for prepared corpora: set IHLAB_CACHE to a folder.",
    )
    return Path(users) / "ihlab"


def _encoded(sha256: str, corpus: Corpus, vocab_size: int) -> Prepared:
    if vocab_size == BYTES:
        vocabulary = tuple(bytes([byte]) for byte in range(BYTES))
        train, test = map(_as_bytes, (corpus.train, corpus.test))
    else:
        train_texts, test_texts = list(map(_text, corpus.train)), list(map(_text, corpus.test))
        tokenizer, byte_of = _trained(train_texts, vocab_size), byte_of_character()
        tokens = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
        vocabulary = tuple(bytes(map(byte_of.__getitem__, token)) for token in tokens)
        train, test = _tokenized(tokenizer, train_texts), _tokenized(tokenizer, test_texts)
    return Prepared(sha256, vocabulary, train, test)


def _as_bytes(documents: Sequence[Document]) -> Part:
    return _joined([np.frombuffer(document.content, np.uint8) for document in documents])


def _tokenized(tokenizer: Any, texts: Sequence[str]) -> Part:
    return _joined([np.array(encoded.ids) for encoded in tokenizer.encode_batch(texts)])


def _joined(documents: Sequence[np.ndarray]) -> Part:
    return Part(np.concatenate(documents).astype(np.uint16), np.cumsum([0, *map(len, documents)]))


def _text(document: Document) -> str:
    try:
        return document.content.decode()
    except UnicodeDecodeError:
        raise ConfigError(
            f"{document.path} of the corpus is not UTF-8: it can only be read as bytes (vocab_size=256)."
        ) from None


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
    size = tokenizer.get_vocab_size()
    require(
        size == vocab_size,
        f"TextTask.vocab_size is {vocab_size}, but the corpus has only {size} byte pairs that occur twice.",
    )
    return tokenizer


def byte_of_character() -> dict[str, int]:
    """Return the byte that each character of GPT-2's byte-level alphabet stands for.

    Printable Latin-1 characters stand for themselves. Characters from U+0100 on stand for the other bytes, in order.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(BYTES + i): byte for i, byte in enumerate(others)
    }


def _store(file: Path, prepared: Prepared) -> None:
    """Write a cache file atomically. Remove what killed processes left in the cache."""
    arrays: dict[str, Any] = {
        "sha256": np.array(prepared.sha256),
        "vocabulary": np.array([token.hex() for token in prepared.vocabulary]),
    }
    for side in SIDES:
        part: Part = getattr(prepared, side)
        arrays |= {side: part.ids, f"{side}_bounds": part.bounds}

    def write(aside: Path) -> None:
        with aside.open("wb") as opened:  # given a name, NumPy would add a suffix
            np.savez(opened, **arrays)

    try:
        remove_partial(file.parent, "text-*")
        write_atomically(file, write)
    except OSError:
        raise ConfigError(
            f"{file} cannot be written: set IHLAB_CACHE to a folder that can."
        ) from None


def _load(file: Path, sha256: str) -> Prepared | None:
    """Return the contents of a cache file, or None if it is missing, damaged or from another corpus."""
    try:
        with file.open("rb") as opened, np.load(opened) as stored:
            train, test = (Part(stored[side], stored[f"{side}_bounds"]) for side in SIDES)
            vocabulary = tuple(map(bytes.fromhex, stored["vocabulary"].tolist()))
            if stored["sha256"] == sha256:
                return Prepared(sha256, vocabulary, train, test)
            return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
