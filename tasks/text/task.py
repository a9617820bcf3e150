"""Text: predict the next token of real documents, as language models do."""

import platform
from dataclasses import field, replace
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int64

from tasks.batch import Batch
from tasks.config import PATH, config, named, require, shown
from tasks.memory import require_rows
from tasks.registry import register_task
from tasks.text.corpus import SAMPLE, STDLIB
from tasks.text.mixes import parsed
from tasks.text.prepared import BYTES, MOST_IDS, Part, Prepared, encode, prepare


@register_task
@config
class TextTask:
    """Sequences cut out of real text. Every next token is a target.

    A sequence lies within one document, and all such sequences are equally likely. Documents of at most `length` tokens
    are not used. Evaluations draw from `held_out`: other directories of the corpus, without near-copies
    (`tasks.text.corpus`). The corpus stdlib differs between versions of Python. `provenance` identifies the corpus and
    is stored with the run, which can be resumed only on the same corpus.

    Attributes:
        corpus: stdlib: the sources of the running Python's standard library (9 MB, on every machine); sample: the
            sources of the package `tasks`; either of them changed by rules, such as stdlib:prose for its docstrings and
            comments (`tasks.text.mixes`); or a folder, whose files are all read, except hidden ones.
        vocab_size: Size of the vocabulary: 256 for bytes, more for a byte-level BPE trained on the corpus' training
            side.
        length: Number of input tokens in a sequence.
        split: Documents to draw from: train, or test, which training never sees.
    """

    kind: ClassVar[str] = "text"

    corpus: str = field(default=STDLIB, metadata={PATH: True})
    vocab_size: int = 2048
    length: int = 256
    split: Literal["train", "test"] = "train"

    def __post_init__(self) -> None:
        require(
            BYTES <= self.vocab_size <= MOST_IDS,
            f"TextTask.vocab_size is {self.vocab_size}, but must be at least {BYTES}, which is bytes, and at most "
            f"{MOST_IDS}.",
        )
        require(self.length >= 1, f"TextTask.length is {self.length}, but must be at least 1.")
        require(self.corpus != "", f"TextTask.corpus is empty, but must be '{STDLIB}', '{SAMPLE}' or a folder.")

    @property
    def held_out(self) -> "TextTask":
        """The same task on documents that training never sees."""
        return replace(self, split="test")

    @property
    def prepared(self) -> Prepared:
        """The corpus as token ids.
        Raises `ConfigError` as `tasks.text.prepared.prepare` does, and for a folder that only a stored file names.
        """
        require(
            parsed(self.corpus)[0] in (STDLIB, SAMPLE) or named(self.corpus),
            f"The corpus {shown(self.corpus)} is named only in a stored file, so it is not read: name it yourself, "
            "with --corpus, or in Python by tasks.config.name_path.",
        )
        return prepare(self.corpus, self.vocab_size)

    @property
    def provenance(self) -> dict[str, str]:
        """The SHA-256 of the corpus and the running version of Python."""
        return {"corpus_sha256": self.prepared.sha256, "python": platform.python_version()}

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences with replacement. Raises `ConfigError` if no document is longer than `length`."""
        require_rows(self, size, rng)
        part: Part = getattr(self.prepared, self.split)
        starts_in = np.maximum(np.diff(part.bounds) - self.length, 0)
        until = np.cumsum(starts_in)
        require(
            bool(until.size) and bool(until[-1]),
            f"TextTask.length is {self.length}, but no document of '{self.corpus}' ({self.split}) has more than "
            f"{int(np.diff(part.bounds).max(initial=0))} tokens.",
        )
        drawn = rng.integers(0, until[-1], size)
        document = np.searchsorted(until, drawn, side="right")
        start = part.bounds[document] + drawn - (until - starts_in)[document]
        rows = part.ids[start[:, None] + np.arange(self.length + 1)].astype(np.int64)
        return Batch(np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]))

    def n_bytes(self, ids: Int64[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
        """Return the number of bytes that each id stands for."""
        return np.array([len(token) for token in self.prepared.vocabulary])[ids]

    def decode(self, ids: Int64[np.ndarray, " token"]) -> bytes:
        """Return the bytes that ids stand for."""
        return b"".join(self.prepared.vocabulary[i] for i in ids)

    def encode(self, text: str) -> Int64[np.ndarray, " token"]:
        """Return the ids of a text: as the corpus was encoded, by its bytes or by its BPE."""
        return encode(text, self.prepared.vocabulary)

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return each id as readable text: its bytes, with control characters and partial characters escaped."""
        return [readable(self.prepared.vocabulary[i]) for i in ids]

    def show(self, batch: Batch, row: int) -> str:
        """Return the text of a sequence with a bar between tokens, and its last target."""
        whole = [*batch.inputs[row], batch.targets[row, -1]]
        text = "|".join(readable(self.prepared.vocabulary[i], breaks=True) for i in whole)
        unit = "bytes" if self.vocab_size == BYTES else "tokens"
        return f"{text}\n\nEvery one of these {self.length + 1} {unit} but the first is a target."


def readable(token: bytes, breaks: bool = False) -> str:
    """Return bytes as text, with unprintable characters escaped. Line breaks stay if `breaks`."""
    text = token.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or (breaks and c == "\n") else repr(c)[1:-1] for c in text)
