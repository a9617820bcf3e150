"""Prove or refute that a model with one attention layer answers every sequence of a set rightly."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from ihlab.certify import walks
from ihlab.certify.certificate import PROVED, REFUTED, UNKNOWN, Certificate, in_order, model_digest
from ihlab.certify.mlp import Enclosed
from ihlab.certify.sequences import Sequences, sequences_of
from ihlab.certify.tables import PairTables, lengthened, pair_tables, require_pairs
from ihlab.interp.sources import opened_model
from ihlab.model.transformer import Transformer
from ihlab.progress import tracked
from ihlab.settings import own_settings
from tasks.config import require

Row = dict[str, Any]

MARGINS_UP_TO = 32
"""Number of tokens of the alphabet up to which every margin is computed by default."""


@own_settings()
def certify(
    source: Any,
    task: Any = None,
    lengths: Iterable[int] | None = None,
    *,
    questions: Sequence[tuple[int, int] | Sequences] | None = None,
    margins: bool | None = None,
    path: str | Path | None = None,
) -> Certificate:
    """Prove or refute that a model answers every sequence of a task rightly (`ihlab.certify.sequences`).

    With one head, the smallest margin of all sequences is computed exactly (`ihlab.certify.walks`). With several heads,
    the sum of each head's smallest contribution is a lower bound, and a search looks for a wrongly answered sequence.
    With an MLP, its input is enclosed by intervals (`ihlab.certify.mlp`).

    - `source`: a `Run`, a `Transformer`, or the Hugging Face model that `to_hf` made of one, or its folder;
    - `task`: an `InductionTask` or `MQARTask`; by default the task that the model was trained on;
    - `lengths`: numbers of tokens, by default 2 up to the task's. Above n_ctx the model must have no learned positions;
    - `questions`: pairs (query, answer), by default all of the task's; or your own automata (`Sequences`);
    - `margins`: whether to compute the margins of proved rows at every length instead of only the longest one. By
      default only for at most 32 tokens in the alphabet, because the time is proportional to the number of lengths;
    - `path`: the file in which to store the certificate after each query token. An existing file is continued; it must
      be of the same model, task and lengths.

    A progress bar counts the query tokens in a terminal or a notebook. Raises `ConfigError` for a model, a task or a
    length that the proof does not cover, and names the reason.
    """
    model = opened_transformer(source)
    require_pairs(model)
    task = model.trained_on if task is None else task
    asked = sorted(_asked(task, questions), key=lambda sequences: (sequences.query, sequences.answer))
    wanted = sorted(set(range(2, task.length + 1) if lengths is None else lengths))
    require(bool(wanted) and wanted[0] >= 2, f"lengths is {wanted}, but must be numbers of at least 2 tokens.")
    require(
        int(max(sequences.alphabet.max() for sequences in asked)) < model.cfg.d_vocab,
        f"The task has ids up to {task and task.vocab_size - 1}, but the model's d_vocab is {model.cfg.d_vocab}.",
    )
    every = len(asked[0].alphabet) <= MARGINS_UP_TO if margins is None else margins
    judged = _Judged(model, asked[0].alphabet, wanted, wanted if every else wanted[-1:])
    stored_task = None if any(isinstance(question, Sequences) for question in questions or ()) else task
    stored, digest = None, model_digest(model)
    if path is not None and Path(path).exists():
        stored = Certificate.open(path)
        require(
            stored.model == digest and stored.task == task and set(stored.table["length"]) <= set(wanted),
            f"{path} is the certificate of another model, task or lengths: give another path.",
        )
    parts: list[pd.DataFrame] = []
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        groups = [(query, list(group)) for query, group in groupby(asked, key=lambda sequences: sequences.query)]
        for query, group in tracked(groups, "certifying query tokens"):
            if stored is not None and query in set(stored.table["query"]):
                parts.append(stored.table[stored.table["query"] == query])
            else:
                parts.append(pd.DataFrame(judged.rows(group, pool)))
            certificate = Certificate(in_order(pd.concat(parts)), judged.rounding, digest, stored_task)
            if path is not None:
                certificate.save(path)
    return certificate


def opened_transformer(source: Any) -> Transformer:
    """Return the `Transformer` of a source. Raises `ConfigError` for another class of model, and for hooks."""
    from transformers import PreTrainedModel  # imported here, because the library takes seconds

    if isinstance(source, PreTrainedModel | str | PathLike):
        from ihlab.hf import from_hf

        source = from_hf(source)
    model = opened_model(source).module
    require(
        isinstance(model, Transformer),
        f"The model is a {type(model).__name__}, but a proof needs a Transformer: convert it (ihlab.hf.from_hf).",
    )
    assert isinstance(model, Transformer)
    hooked = [name for name, point in model.hook_dict.items() if point.fwd_hooks]
    require(not hooked, f"The model has a hook at {hooked and hooked[0]}, but a proof speaks of its weights alone.")
    return model


def _asked(task: Any, questions: Sequence[tuple[int, int] | Sequences] | None) -> list[Sequences]:
    if questions is not None and all(isinstance(question, Sequences) for question in questions):
        return list(questions)  # type: ignore[arg-type]
    require(task is not None, "The task of the model is not known: give one.")
    pairs, of_question = sequences_of(task)
    chosen = pairs if questions is None else list(questions)
    for question in chosen:
        require(question in pairs, f"{question} is not a question (query, answer) of the task.")
    return [of_question(*question) for question in chosen]  # type: ignore[misc]


class _Judged:
    """Computes the verdicts on a model, for one query token at a time.

    - `lengths`: numbers of tokens; `with_margin`: those whose margins are computed even if they are proved;
    - `rounding`: a bound of the rounding error of a margin at the longest length, by type.
    """

    def __init__(self, model: Transformer, alphabet: np.ndarray, lengths: list[int], with_margin: list[int]) -> None:
        self.model, self.alphabet, self.lengths, self.with_margin = model, alphabet, lengths, set(with_margin)
        self.learned = model.pos_embed is not None
        # The tables of the longest length hold for every length, unless the model has learned positions.
        self._tables = lru_cache(maxsize=1)(partial(pair_tables, model, alphabet))
        self.rounding = dict(self._tables(lengths[-1]).rounding)
        self._enclosed = lru_cache(maxsize=1)(partial(Enclosed, model, alphabet))
        self._longer = lengthened(model, lengths[-1])

    def rows(self, group: Sequence[Sequences], pool: ThreadPoolExecutor) -> list[Row]:
        """Return the rows of all questions of one query."""
        query = int(np.searchsorted(self.alphabet, group[0].query))
        rows: list[Row] = []
        for lengths in [[length] for length in self.lengths] if self.learned else [self.lengths]:
            tables = self._tables(lengths[-1])
            judge = partial(self._judge, tables=tables, mass=tables.masses(query), query=query, lengths=lengths)
            rows += [row for of_question in pool.map(judge, group) for row in of_question]
        return self._settled(rows)

    def _judge(
        self,
        sequences: Sequences,
        tables: PairTables,
        mass: Float[np.ndarray, "head back token before"],
        query: int,
        lengths: list[int],
    ) -> list[Row]:
        """Return a row for each length: proved, or a candidate for a sequence that is answered wrongly."""
        automaton = walks.Automaton(sequences.first, sequences.rule, sequences.follow, sequences.asks)
        weighed = (mass, tables.read, tables.direct[query], sequences.answer)
        weights = np.full(lengths[-1] + 1, -np.inf)  # above 0: proved, its margin not known
        enclosed = None if self.model.layers[0].mlp is None else self._enclosed(lengths[-1])
        limit = tables.rounding["float64"] if enclosed is None else 0.0
        if len(mass) == 1 and enclosed is None and not self.with_margin.issuperset(lengths):
            weights = walks.lightest_of_rivals(*weighed, automaton, query, lengths[-1], limit)
        rows, rival = [], 0
        for length in lengths:
            row = {"length": length, "query": sequences.query, "answer": sequences.answer}
            if weights[length] > 0 and length not in self.with_margin:
                if weights[length] < np.inf:
                    rows.append({**row, "verdict": PROVED, "margin": np.nan, "bound": np.nan, "worst": []})
                continue
            if enclosed is None:
                bounds, of_heads = walks.smallest_margins(*weighed, automaton, query, length, False, rival)
                bound, rival = bounds.min(), int(bounds.argmin())
            else:
                bound, of_heads = enclosed.bound(mass, automaton, query, sequences.answer, length)
            if np.isinf(bound):  # the set has no sequence of this length
                continue
            if enclosed is None:
                margins = walks.margins_of(*weighed, of_heads)
            else:
                margins = enclosed.margin(self.alphabet[of_heads], sequences.answer)
            walk, margin = of_heads[margins.argmin()], margins.min()
            if bound <= limit < margin and enclosed is None:
                walk, margin = walks.descend(*weighed, walk, lambda tokens: sequences.holds(self.alphabet[tokens]))
            verdict = PROVED if bound > limit else UNKNOWN if margin > limit else REFUTED
            worst = self.alphabet[walk].tolist()
            rows.append({**row, "verdict": verdict, "margin": margin, "bound": bound, "worst": worst})
        return rows

    @torch.no_grad()
    def _settled(self, rows: list[Row]) -> list[Row]:
        """Return the rows. A row stays refuted only if the model itself answers its sequence wrongly."""
        for _, same_length in groupby(rows, key=lambda row: row["length"] * (row["verdict"] == REFUTED)):
            refuted = [row for row in same_length if row["verdict"] == REFUTED]
            if not refuted:
                continue
            tokens = torch.tensor([row["worst"] for row in refuted], device=self.model.embed.weight.device)
            logits = self._longer(tokens)[:, -1].cpu()
            for row, scores in zip(refuted, logits, strict=True):
                right = scores[row["answer"]].item()
                scores[row["answer"]] = -torch.inf
                if right > scores.max():  # within the model's own rounding
                    row["verdict"] = UNKNOWN
                    if row["margin"] < -self.rounding["float32"]:
                        raise AssertionError(
                            f"The model answers {row['worst']} rightly, which its certificate refutes."
                        )
        return rows
