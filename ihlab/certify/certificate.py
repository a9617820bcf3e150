"""A certificate: what is proved about a model on every sequence of a set, the worst sequences, and
its file format.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save as serialised
from torch.nn.utils.rnn import pad_sequence

from ihlab.certify.sequences import Sequences, automata_of, questions_of
from ihlab.model.transformer import Transformer
from ihlab.storage.stored import read_tensors
from tasks import Task
from tasks.codec import from_plain, to_plain
from tasks.config import ConfigError, require, require_integer, shown
from tasks.files import write_atomically

PROVED, REFUTED, UNKNOWN = VERDICTS = ("proved", "refuted", "unknown")
COLUMNS = {
    "length": "int64",
    "query": "int64",
    "answer": "int64",
    "margin": "float64",
    "bound": "float64",
}
ENTRY = "ihlab certificate"
"""The key of the only entry of a file's metadata, whose value is JSON."""
FORMAT = 2
"""The version of the file. Files of version 1 stated their own rounding, and are not read."""
LONGEST = 4096
"""The most tokens of a sequence."""
MOST_IDS = 1024
"""The most ids of a stored certificate's task."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is proved about a model, for each length and question. It holds for the stored weights
    in real arithmetic.

    `table` has one row for each length and question (query, answer) that has a sequence:

    - `verdict`: "proved": every sequence of the set is answered rightly. "refuted": `worst` is
      answered wrongly, in real arithmetic and by the model itself. "unknown": neither is known;
    - `worst`: the ids of the sequence with the smallest known margin; the last one is the query;
    - `margin`: on `worst`, from above: the answer's logit minus the largest other one, before the
      final norm's scale divides both;
    - `bound`: no margin of the set is below it. With one head it is equal to `margin` up to
      rounding. With margins=False, at all lengths but the longest, `bound` is NaN and `worst` is
      empty in proved rows.

    `model` identifies config and weights (`model_digest`), and `dtype` is the type of the weights.
    `without` names parts that were left out of the model. The other fields are the arguments of the
    call: `task` is None for your own automata, and `questions` for all questions of the task. `set`
    says which sequences are meant. `rounding` is left from version 0.4: nothing reads it.
    """

    table: pd.DataFrame
    model: str
    dtype: str
    task: Task | None
    lengths: list[int]
    questions: list[tuple[int, int]] | None
    margins: bool
    without: tuple[str, ...] = ()
    set: str = ""
    rounding: Mapping[str, float] | None = None
    automata: Sequence[Sequences] = field(default=(), repr=False)
    _network: Transformer | None = field(default=None, repr=False)

    @property
    def status(self) -> str:
        """ "refuted" if any row is, "proved" if all rows are, otherwise "unknown"."""
        verdicts = {*self.table["verdict"]}
        if REFUTED in verdicts:
            return REFUTED
        return PROVED if verdicts == {PROVED} else UNKNOWN

    @property
    def longest(self) -> int:
        """The largest length up to which every row is proved; 0 if the shortest one has another
        verdict.
        """
        return max(self._proved_lengths, default=0)

    @property
    def worst(self) -> list[int]:
        """The ids of the sequence with the smallest known margin; empty if only signs were
        computed.
        """
        known = self.table["margin"].fillna(np.inf)
        return self.table["worst"].iloc[int(known.argmin())]

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits: a hash of the model and of the arguments of the call."""
        return hashlib.sha256(self._entry.encode()).hexdigest()[:16]

    @property
    def verdict(self) -> str:
        """One sentence: what is proved, and what is not."""
        rows = self.table[self.table["verdict"] == self.status]
        where = f"in {len(rows)} of {len(self.table)} rows, from {rows['length'].min()} tokens on"
        proved = "no length is proved"
        if self.longest:
            proved = f"proved: {ranges(self._proved_lengths)} tokens"
        if self.status == PROVED:
            said = f"proved: {self.set} is answered rightly."
        elif self.status == UNKNOWN:
            said = f"unknown: neither proved nor refuted {where}; {proved}. The set: {self.set}."
        else:
            worst = rows.iloc[int(rows["margin"].argmin())]
            said = (
                f"refuted: a sequence is answered wrongly {where}, such as one of {worst['length']} tokens with margin "
                f"{worst['margin']:.3g}; {proved}. The set: {self.set}."
            )
        if self.without:
            said += f" The model is without {' and '.join(self.without)}."
        return said

    def export(self, folder: str | Path) -> Path:
        """Write a folder with the weights, the verdicts, and `check.py`, which proves the proved
        rows anew.

        That program has at most 120 lines and needs Python 3.11 and no packages.

        Raises `ConfigError` for what that checker does not cover (`ihlab.certify.export`).
        """
        from ihlab.certify.export import export  # it reads certificates

        return export(self, folder)

    def finished(
        self, table: pd.DataFrame, automata: Sequence[Sequences], network: Transformer | None = None
    ) -> "Certificate":
        """Return this certificate with its rows, and the sentence of its set."""
        said = set_of(self.task, automata, sorted(table["length"].unique().tolist()))
        return replace(self, table=table, set=said, automata=automata, _network=network)

    def save(self, path: str | Path) -> None:
        """Write the certificate as safetensors, atomically.

        Raises `ConfigError` for a certificate of your own automata, which a file does not hold.
        """
        require(
            self.task is not None,
            "A certificate of your own automata is not stored: only tasks are.",
        )
        tensors = {}
        for name, dtype in COLUMNS.items():
            tensors[name] = torch.tensor(self.table[name].to_numpy(dtype))
        tensors["verdict"] = torch.tensor(self.table["verdict"].map(VERDICTS.index).to_numpy())
        walks = [torch.tensor(walk, dtype=torch.int32) for walk in self.table["worst"]]
        tensors["worst"] = pad_sequence(walks, batch_first=True, padding_value=-1)
        content = serialised(tensors, {ENTRY: self._entry})
        write_atomically(Path(path), lambda aside: aside.write_bytes(content))  # type: ignore[arg-type]

    @classmethod
    def open(cls, path: str | Path) -> "Certificate":
        """Read a certificate. Raises `ConfigError` for a file that is damaged or something else.

        It does not check what the certificate says: `ihlab.certify.check` does.
        """
        tensors, metadata = read_tensors(Path(path))
        try:
            entry = json.loads(metadata[ENTRY])
            _require_equal("format", entry["format"], FORMAT)
            for name, dtype in {**COLUMNS, "verdict": "int64", "worst": "int32"}.items():
                _require_equal(name, str(tensors[name].dtype), f"torch.{dtype}")
            table = pd.DataFrame({name: tensors[name].numpy() for name in COLUMNS})
            table["verdict"] = [VERDICTS[number] for number in tensors["verdict"].tolist()]
            table["worst"] = [walk[walk >= 0].tolist() for walk in tensors["worst"].numpy()]
            lengths, questions = require_lengths(entry["lengths"]), entry["questions"]
            _require_equal("other lengths", {*table["length"]} - {*lengths}, set())
            task: Any = from_plain(Task, entry["task"])
            require(task.vocab_size <= MOST_IDS, f"vocab_size is {task.vocab_size}")
            if questions is not None:
                questions = [(int(query), int(answer)) for query, answer in questions]
            n_questions = len(questions_of(task) if questions is None else questions)
            require(n_questions <= len(table), f"{n_questions} questions have {len(table)} rows")
            planned = cls(
                table=pd.DataFrame(),
                model=str(entry["model"]),
                dtype=str(entry["dtype"]),
                task=task,
                lengths=lengths,
                questions=questions,
                margins=bool(entry["margins"]),
                without=tuple(map(str, entry.get("without", ()))),
            )
            return planned.finished(in_order(table), automata_of(task, questions))
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise ConfigError(
                f"{path} is not a certificate, or is damaged ({type(error).__name__}: {error})."
            ) from error

    @property
    def _entry(self) -> str:
        entry = {
            "format": FORMAT,
            "model": self.model,
            "dtype": self.dtype,
            "task": None if self.task is None else to_plain(self.task),
            "lengths": self.lengths,
            "questions": self.questions,
            "margins": self.margins,
        }
        if self.without:  # files without it have the keys that they always had
            entry["without"] = self.without
        return json.dumps(entry, sort_keys=True)

    @property
    def _proved_lengths(self) -> list[int]:
        proved = (self.table["verdict"] == PROVED).groupby(self.table["length"]).all()
        return proved.index[proved.cummin()].tolist()


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its columns and rows in the usual order."""
    columns = ["length", "query", "answer", "verdict", "margin", "bound", "worst"]
    return table[columns].sort_values(["length", "query", "answer"], ignore_index=True)


def dtype_of(model: Transformer) -> str:
    """Return the name of the type of a model's weights."""
    return str(model.embed.weight.dtype).removeprefix("torch.")


def rows_of(automata: Iterable[Sequences], lengths: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return (length, query, answer) of every question at every length that has a sequence, in the
    table's order.
    """
    rows = []
    for automaton, counts in _counted(automata, max(lengths)):
        for length in lengths:
            if counts[length]:
                rows.append((length, automaton.query, automaton.answer))
    return sorted(rows)


def _counted(automata: Iterable[Sequences], longest: int) -> Iterator[tuple[Sequences, list[int]]]:
    """Yield automata with their numbers of sequences by length, which are counted once for each
    shape.
    """
    counts: dict[tuple[bytes, ...], list[int]] = {}
    for automaton in automata:
        shape = automaton.shape
        if shape not in counts:
            counts[shape] = automaton.counts(longest)
        yield automaton, counts[shape]


def _require_equal(what: str, value: Any, expected: Any) -> None:
    require(value == expected, f"{what} is {shown(value)}, not {shown(expected)}")


def require_lengths(lengths: Any) -> list[int]:
    """Return lengths in ascending order. Raises `ConfigError` unless they are numbers of tokens."""
    require(
        isinstance(lengths, Iterable),
        f"lengths is {shown(lengths)}, but must be several numbers.",
    )
    wanted = [*lengths]
    for length in wanted:
        require_integer("A length", length, 2)
    require(
        len(wanted) > 0 and max(wanted) <= LONGEST,
        f"lengths is {shown(wanted)}, but must be numbers of tokens from 2 to {LONGEST}.",
    )
    return sorted({*map(int, wanted)})


def model_digest(model: Transformer) -> str:
    """Return the SHA-256 of a model's config, and of its weights and their types."""
    digest = hashlib.sha256(json.dumps(to_plain(model.cfg), sort_keys=True).encode())
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name} {weight.dtype}".encode())
        digest.update(np.ascontiguousarray(weight.detach().cpu().double().numpy()).tobytes())
    return digest.hexdigest()


def set_of(task: Any, automata: Sequence[Sequences], lengths: list[int]) -> str:
    """Return in words which sequences of some lengths automata hold, with their exact share of all
    sequences.
    """
    n_ids = len(automata[0].alphabet)
    tokens = f"every sequence of {ranges(lengths)} tokens over"
    if task is None:  # a sentence can be wider than the sets: it is quoted
        words = '", "'.join(sorted({automaton.sentence for automaton in automata}))
        return f'{tokens} {n_ids} ids, of those that your own automata accept ("{words}")'
    n_ids -= task.bos
    after = " after BOS" if task.bos else ""
    said = f"{tokens} {n_ids} ids{after} {automata[0].sentence}"
    n_questions = len(questions_of(task))
    if len(automata) < n_questions:
        said += f", for {len(automata)} of {n_questions} questions"
    return f"{said} ({percent(share(automata, lengths, n_ids, task.bos))} of all)"


def share(automata: Sequence[Sequences], lengths: list[int], n_ids: int, bos: bool) -> Fraction:
    """Return the exact fraction of all sequences of these lengths that are in a set.

    A task has one set per question (query and answer), and a sequence is in at most one.
    """
    inside, every = 0, 0
    of_automata = list(_counted(automata, lengths[-1]))
    for length in lengths:
        every += n_ids ** (length - bos)
        for _, counts in of_automata:
            inside += counts[length]
    return Fraction(inside, every)


def percent(fraction: Fraction) -> str:
    """Return a fraction as a percentage with two digits."""
    number = 100 * fraction
    return f"{float(number):.2g} %" if number > Fraction(1, 10**30) else "less than 1e-30 %"


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in words: [3, 4, 5, 8] is "3 to 5 and 8"."""
    words: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda placed: placed[1] - placed[0]):
        members = [str(number) for _, number in run]
        words += members if len(members) < 3 else [f"{members[0]} to {members[-1]}"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
