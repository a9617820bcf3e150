"""Text: predict the next token of real documents, as language models do."""

import platform
from dataclasses import field, replace
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int64

from tasks.batch import IGNORE, Batch
from tasks.config import PATH, config, named, real_path, require, require_least, shown, visible
from tasks.memory import require_rows
from tasks.registry import register_task
from tasks.text.corpus import SAMPLE, STDLIB
from tasks.text.prepared import BYTES, MOST_IDS, Part, Prepared, encode, prepare


@register_task
@config
class TextTask:
    """Sequences cut out of real text. Every next token is a target.

    A sequence lies within one document, and all such sequences are equally likely. Documents of at most `length` tokens
    are not used. With `pack`, documents of any length follow each other in a random order, all of them before any
    again, and are cut into sequences; no target is the first token of the next document. Evaluations draw from
    `held_out`: other directories of the corpus, without near-copies by lines (`tasks.text.corpus`). The corpus stdlib
    differs between versions of Python. `provenance` identifies the corpus and is stored with the run, which can be
    resumed only on the same corpus.

    Attributes:
        corpus: stdlib: the sources of the running Python's standard library (9 MB, on every machine); sample: the
            sources of the package `tasks`; or a folder, whose files are all read, once in a process, except hidden
            and blank ones and linked folders.
        vocab_size: Size of the vocabulary: 256 for bytes, more for a byte-level BPE trained on the training
            documents.
        length: Number of input tokens in a sequence.
        split: Documents to draw from: train, or test, which a run does not train on.
        pack: Fill sequences with whole documents and pieces of documents, and mark where documents start.
        bos: Begin each packed document with the id of the byte 0xFF, which UTF-8 never has.
    """

    kind: ClassVar[str] = "text"

    corpus: str = field(default=STDLIB, metadata={PATH: True})
    vocab_size: int = 2048
    length: int = 256
    split: Literal["train", "test"] = "train"
    pack: bool = False
    bos: bool = False

    def __post_init__(self) -> None:
        require(
            BYTES <= self.vocab_size <= MOST_IDS,
            f"TextTask.vocab_size is {self.vocab_size}, but must be at least {BYTES}, which is bytes, and at most "
            f"{MOST_IDS}.",
        )
        require_least(self, length=1)
        require(
            self.pack or not self.bos,
            "TextTask.bos is True, but only packed documents begin with it: set pack.",
        )
        require(
            self.corpus != "",
            f"TextTask.corpus is empty, but must be '{STDLIB}', '{SAMPLE}' or a folder.",
        )

    @property
    def held_out(self) -> "TextTask":
        """The same task on documents that a run does not train on."""
        return replace(self, split="test")

    @property
    def prepared(self) -> Prepared:
        """The corpus as token ids.
        Raises `ConfigError` as `tasks.text.prepared.prepare` does, and for a folder that only a stored file names.
        """
        require(
            self.corpus in (STDLIB, SAMPLE) or named(self.corpus),
            f"The corpus {shown(self.corpus)} is named only in a stored file, so it is not read: name it yourself, "
            "with --corpus, or in Python by tasks.config.name_path.",
        )
        if self.corpus in (STDLIB, SAMPLE):
            return prepare(self.corpus, self.vocab_size)
        return prepare(
            real_path(self.corpus), self.vocab_size
        )  # relative: another folder elsewhere

    @property
    def provenance(self) -> dict[str, str]:
        """The SHA-256 of the corpus and the running version of Python."""
        return {"corpus_sha256": self.prepared.sha256, "python": platform.python_version()}

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, with replacement unless packed.

        Raises `ConfigError` if no document is longer than `length`, and for a byte 0xFF in the text if it is the BOS.
        """
        require_rows(self, size, rng)
        side: Part = getattr(self.prepared, self.split)
        if self.pack:
            return self._packed(side, size, rng)
        starts_in = np.maximum(np.diff(side.bounds) - self.length, 0)
        until = np.cumsum(starts_in)
        require(
            bool(until.size) and bool(until[-1]),
            f"TextTask.length is {self.length}, but no document of '{self.corpus}' ({self.split}) has more than "
            f"{int(np.diff(side.bounds).max(initial=0))} tokens.",
        )
        drawn = rng.integers(0, until[-1], size)
        document = np.searchsorted(until, drawn, side="right")
        start = side.bounds[document] + drawn - (until - starts_in)[document]
        rows = side.ids[start[:, None] + np.arange(self.length + 1)].astype(np.int64)
        return Batch(np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]))

    def _packed(self, side: Part, size: int, rng: np.random.Generator) -> Batch:
        lengths, needed = np.diff(side.bounds) + self.bos, size * self.length + 1
        order = np.concatenate(
            [rng.permutation(len(lengths)) for _ in range(1 + needed // int(lengths.sum()))]
        )
        drawn = order[: 1 + np.searchsorted(lengths[order].cumsum(), needed)]
        stream = np.full(lengths[drawn].sum(), self.bos_id)
        starts = np.zeros(len(stream), dtype=bool)
        starts[np.cumsum([0, *lengths[drawn[:-1]]])] = True
        text = np.concatenate([side.ids[side.bounds[i] : side.bounds[i + 1]] for i in drawn])
        require(
            not self.bos or self.bos_id not in text,
            f"TextTask.bos is True, but the text of '{self.corpus}' has the byte 0xFF: it must be UTF-8.",
        )
        stream[~starts if self.bos else slice(None)] = text
        targets = np.where(starts, IGNORE, stream)[1:needed]
        rows = (size, self.length)
        inputs, begins = stream[: needed - 1].reshape(rows), starts[: needed - 1].reshape(rows)
        return Batch(inputs, targets.reshape(rows), document_starts=begins)

    @property
    def bos_id(self) -> int:
        """The id that packed documents begin with if `bos` is set."""
        return self.prepared.vocabulary.index(b"\xff")

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that are not text."""
        return (self.bos_id,) if self.bos else ()

    def n_bytes(self, ids: Int64[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
        """Return the number of bytes that each id stands for."""
        return np.array([len(token) for token in self.prepared.vocabulary])[ids]

    def decode(self, ids: Int64[np.ndarray, " token"]) -> bytes:
        """Return the bytes that ids stand for."""
        return b"".join(self.prepared.vocabulary[i] for i in ids)

    def encode(self, text: str) -> Int64[np.ndarray, " token"]:
        """Tokenize a text as the corpus was tokenized: as bytes or with its BPE."""
        return encode(text, self.prepared.vocabulary)

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return each id as readable text: its bytes, with control characters and partial characters escaped."""
        return [readable(self.prepared.vocabulary[i]) for i in ids]

    def show(self, batch: Batch, row: int) -> str:
        """Return the text of a sequence with a bar between tokens, and its last target."""
        last = batch.targets[row, -1]
        whole = [*batch.inputs[row], *([last] if last != IGNORE else [])]
        text = "|".join(readable(self.prepared.vocabulary[i], breaks=True) for i in whole)
        unit = "bytes" if self.vocab_size == BYTES else "tokens"
        starts = " and the first of each document" if self.pack else ""
        return (
            f"{text}\n\nEvery one of these {len(whole)} {unit} but the first{starts} is a target."
        )


def readable(token: bytes, breaks: bool = False) -> str:
    """Return bytes as text, with unprintable characters escaped. Line breaks stay if `breaks`."""
    text = token.decode(errors="backslashreplace")
    return "\n".join(map(visible, text.split("\n"))) if breaks else visible(text)
