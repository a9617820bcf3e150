"""A certificate: what is proved about a model on every sequence of a set, the worst sequences, and its file format."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save as serialised

from ihlab.certify.sequences import sequences_of
from ihlab.files import write_atomically
from ihlab.model.transformer import Transformer
from ihlab.stored import read_tensors
from tasks import Task
from tasks.codec import from_plain, to_plain
from tasks.config import require

PROVED, REFUTED, UNKNOWN = VERDICTS = ("proved", "refuted", "unknown")
COLUMNS = {"length": "int64", "query": "int64", "answer": "int64", "margin": "float64", "bound": "float64"}
ENTRY = "ihlab certificate"
"""The key of the only entry of a file's metadata, whose value is JSON."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is proved about a model, for each length and question. It holds for the stored weights in real arithmetic.

    `table` has one row for each length and question (query, answer) that has a sequence:

    - `verdict`: "proved": every sequence of the set is answered rightly. "refuted": `worst` is answered wrongly, by the
      model itself. "unknown": neither is known;
    - `worst`: the ids of the sequence with the smallest known margin; the last one is the query;
    - `margin`: on `worst`, the answer's logit minus the largest other one, before the final norm's scale divides both;
    - `bound`: a lower bound of all margins of the set. With one head, it is the margin of `worst`. NaN (and an
      empty `worst`) where only its sign was computed.

    `rounding` bounds the error of a margin computed in "float64", as here, and in "float32", as the model computes. A
    bound above the first is positive in real arithmetic, above the second also in the model's own arithmetic. `task`
    is None for your own automata, `model` identifies config and weights (`model_digest`).
    """

    table: pd.DataFrame
    rounding: dict[str, float]
    model: str
    task: Task | None

    @property
    def status(self) -> str:
        """ "refuted" if any row is, "proved" if all rows are, otherwise "unknown"."""
        verdicts = set(self.table["verdict"])
        return REFUTED if REFUTED in verdicts else UNKNOWN if UNKNOWN in verdicts else PROVED

    @property
    def longest(self) -> int:
        """The largest length up to which every row is proved; 0 if the shortest one has another verdict."""
        proved = (self.table["verdict"] == PROVED).groupby(self.table["length"]).all()
        return int(proved.index[proved.cummin()].max()) if proved.iloc[0] else 0

    @property
    def worst(self) -> list[int]:
        """The ids of the sequence with the smallest known margin."""
        return self._smallest["worst"]

    @property
    def _smallest(self) -> Any:
        return self.table.iloc[int(self.table["margin"].argmin())]

    @property
    def verdict(self) -> str:
        """One sentence: what is proved, and what is not."""
        lengths, questions = self.table["length"], self.table[["query", "answer"]].drop_duplicates()
        every = "" if self.task is None else f" of {len(sequences_of(self.task)[0])}"
        said = f"{len(questions)}{every} questions, {lengths.min()} to {lengths.max()} tokens"
        every_sequence = f"every sequence of up to {self.longest} tokens that has one right answer is answered rightly"
        until = every_sequence if self.longest else "no length"
        if self.status == PROVED:
            return f"proved: {until} ({said})."
        broken = self.table[self.table["verdict"] == self.status]
        where = f"in {len(broken)} of {len(self.table)} rows, from {broken['length'].min()} tokens on"
        if self.status == UNKNOWN:
            return f"unknown: the bound is too weak {where}; proved: {until} ({said})."
        worst = self._smallest
        return (
            f"refuted: a sequence is answered wrongly {where}, such as one of {worst['length']} tokens with margin "
            f"{worst['margin']:.3g}; proved: {until} ({said})."
        )

    def save(self, path: str | Path) -> None:
        """Write the certificate as safetensors, atomically.

        Raises `ConfigError` for a certificate of your own automata, which a file does not hold.
        """
        require(self.task is not None, "A certificate of your own automata is not stored: only tasks are.")
        tensors = {name: torch.tensor(self.table[name].to_numpy(sort)) for name, sort in COLUMNS.items()}
        tensors["verdict"] = torch.tensor([VERDICTS.index(verdict) for verdict in self.table["verdict"]])
        longest = max((len(walk) for walk in self.table["worst"]), default=0)
        padded = [walk + [-1] * (longest - len(walk)) for walk in self.table["worst"]]
        tensors["worst"] = torch.tensor(padded, dtype=torch.int32).reshape(len(self.table), longest)
        entry = {"rounding": self.rounding, "model": self.model, "task": to_plain(self.task)}
        content = serialised(tensors, {ENTRY: json.dumps(entry, sort_keys=True)})
        write_atomically(Path(path), lambda aside: aside.write_bytes(content))  # type: ignore[arg-type]

    @classmethod
    def open(cls, path: str | Path) -> "Certificate":
        """Read a certificate. Raises `ConfigError` for a file that is damaged or something else.

        It does not check what the certificate says: `ihlab.certify.check` does.
        """
        tensors, metadata = read_tensors(Path(path))
        try:
            entry = json.loads(metadata[ENTRY])
            table = pd.DataFrame({name: tensors[name].numpy() for name in COLUMNS})
            table["verdict"] = [VERDICTS[number] for number in tensors["verdict"].tolist()]
            walks = tensors["worst"].tolist()
            table["worst"] = [[token for token in walk if token >= 0] for walk in walks]
            rounding = {str(name): float(value) for name, value in entry["rounding"].items()}
            task: Any = from_plain(Task, entry["task"])
            return cls(in_order(table), rounding, str(entry["model"]), task)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            require(False, f"{path} is not a certificate, or is damaged ({type(error).__name__}: {error}).")
            raise


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its columns and rows in the usual order."""
    columns = ["length", "query", "answer", "verdict", "margin", "bound", "worst"]
    return table[columns].sort_values(["length", "query", "answer"], ignore_index=True)


def model_digest(model: Transformer) -> str:
    """Return the SHA-256 of a model's config and weights."""
    digest = hashlib.sha256(json.dumps(to_plain(model.cfg), sort_keys=True).encode())
    for name, weight in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weight.detach().cpu().double().numpy()).tobytes())
    return digest.hexdigest()
