"""Test every claim of a stored certificate against the model.

The check shares with the solver the enclosed tables of the model (`ihlab.certify.tables`), their weights, the margin of
one sequence and the automata of the set. It has shortest paths of its own, by which it tests every bound, and lists the
rows that must be there by itself. `Certificate.export` writes a folder whose checker shares nothing with this package.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ihlab.certify.bounds import BUDGET, Bounds
from ihlab.certify.certificate import PROVED, REFUTED, Certificate, dtype_of, model_digest, rows_of
from ihlab.certify.certify import answered_rightly, require_fits
from ihlab.certify.enclosures import below
from ihlab.certify.plain import longer, opened_transformer, plain_copy
from ihlab.certify.sequences import Sequences
from ihlab.certify.tables import ModelTables, PairTables
from ihlab.certify.walks import Array, Automaton, automaton_of, compiled, margin_above
from tasks.config import require

TOLERANCE = 1e-6
"""A margin may differ from that of its sequence by this fraction of it, or this much."""


def check(path: str | Path, model: Any) -> int:
    """Check every row of a certificate, and return the number of proved and refuted ones.

    Each row must be one of the set, and each of the set must be there once. In a proved row all margins must be above
    0. No margin of the set may be below a bound. A margin must be that of the row's sequence, up to 1e-6, and the
    sequence must be in the set. A refuted sequence must be answered wrongly by the model, in real arithmetic and in its
    own, and a proved row's sequence rightly.

    `model` is a source as for `certify`. Raises `ConfigError` if the certificate is of another model, and for the first
    row that does not hold.
    """
    certificate, network = Certificate.open(path), opened_transformer(model)
    same = certificate.model == model_digest(network) and certificate.dtype == dtype_of(network)
    require(same, f"{path} is the certificate of another model.")
    require_fits(network, certificate.automata, certificate.lengths)
    _require_rows(path, certificate)
    table, automata = certificate.table, {(each.query, each.answer): each for each in certificate.automata}
    lengths, longest = certificate.lengths, certificate.lengths[-1]
    plain = plain_copy(network, longest)
    tables = ModelTables(plain, certificate.automata[0].alphabet, longest)
    groups = [lengths] if plain.pos_embed is None else [[length] for length in lengths]
    for some in groups:
        chosen = table[table["length"].isin(some)]
        for question, rows in chosen.groupby(["query", "answer"]):
            sequences = automata[question]  # type: ignore[index]
            query = int(np.searchsorted(sequences.alphabet, sequences.query))
            failed = _failed(sequences, tables.of(query, some[-1]), rows)
            require(failed is None, f"{path} does not hold: {failed}.")
    _require_answers(path, table, longer(network, longest))
    return int(table["verdict"].isin([PROVED, REFUTED]).sum())


def _require_rows(path: str | Path, certificate: Certificate) -> None:
    """Require exactly the rows of the set, with bounds where the options say so."""
    expected = rows_of(certificate.automata, certificate.lengths)
    rows = list(certificate.table[["length", "query", "answer"]].itertuples(index=False, name=None))
    require(expected == rows, f"{path} does not hold: its {len(rows)} rows are not the {len(expected)} of its set.")
    known = certificate.table["bound"].notna() & certificate.table["margin"].notna()
    needed = certificate.table["length"].isin(certificate.lengths if certificate.margins else certificate.lengths[-1:])
    require(bool(known[needed].all()), f"{path} does not hold: a row has no bound, though the options ask for it.")


def _failed(sequences: Sequences, tables: PairTables, rows: pd.DataFrame) -> str | None:
    """Return what is wrong with the rows of a question, or None."""
    bounds = Bounds(tables, sequences.answer, automaton_of(sequences), _lightest_walks, 4 * BUDGET)
    unbounded = rows[rows["bound"].isna() & (rows["verdict"] == PROVED)]
    if len(unbounded):
        signs = bounds.signs(unbounded["length"].tolist())
        for each in unbounded.itertuples():
            if not signs[int(each.length)].above:  # type: ignore[arg-type]
                return f"{_named(each)} is not proved"
    for row in rows.itertuples():
        wrong = _wrong_bound(bounds, row) or _wrong_sequence(sequences, tables, row)
        if wrong is not None:
            return f"{_named(row)} {wrong}"
    return None


def _wrong_bound(bounds: Bounds, row: Any) -> str | None:
    """Return what is wrong with a row's bound, or None."""
    if np.isnan(row.bound):
        return None
    if row.verdict == PROVED and not row.bound >= 0:
        return f"is called proved with a bound of {row.bound}"
    if row.bound > bounds.floor or row.verdict == PROVED:
        sign = bounds.signs([row.length], row.bound).get(row.length)
        if sign is None or not sign.above:
            return f"has a sequence whose margin may be {row.bound} or less"
    return None


def _wrong_sequence(sequences: Sequences, tables: PairTables, row: Any) -> str | None:
    """Return what is wrong with a row's sequence and its margin, or None."""
    if not row.worst:
        lacks = row.verdict == REFUTED or not np.isnan(row.margin)
        return "names no sequence" if lacks else None
    if len(row.worst) != row.length or not sequences.holds(row.worst):
        return f"names {row.worst}, which is not a sequence of its set"
    margin = margin_above(tables, sequences.answer, np.searchsorted(sequences.alphabet, row.worst))
    if not abs(row.margin - margin) <= TOLERANCE * (1 + abs(margin)):
        return f"claims a margin of {row.margin}, but it is {margin}"
    certain = row.verdict != REFUTED or margin <= 0
    return None if certain else f"is called refuted, but the margin of its sequence may be {margin}"


def _named(row: Any) -> str:
    return f"the row of {row.length} tokens, query {row.query}, answer {row.answer}"


def _require_answers(path: str | Path, table: pd.DataFrame, model: Any) -> None:
    """Require that the model answers the sequences of refuted rows wrongly, and of proved rows rightly."""
    known = table[(table["worst"].map(len) > 0) & table["verdict"].isin([PROVED, REFUTED])]
    for _, rows in known.groupby("length"):
        right = answered_rightly(model, np.array(rows["worst"].tolist()), rows["answer"].to_numpy())
        odd = rows[right != (rows["verdict"] == PROVED)]
        require(
            odd.empty,
            lambda odd=odd: f"{path} does not hold: the model answers the sequence of {_named(odd.iloc[0])} otherwise.",  # type: ignore[misc]
        )


@compiled
def _lightest_walks(weight: Array, automaton: Automaton, lengths: Array) -> tuple[Array, Array]:
    """Return what `ihlab.certify.walks.lightest_walks` does, found forwards from the first token."""
    n_states, n_tokens = automaton.rule.shape
    totals, walks = np.full(len(lengths), np.inf), np.full((len(lengths), lengths.max()), automaton.query)
    for i in range(len(lengths)):
        length = lengths[i]
        sums = np.full((length, n_states, n_tokens), np.inf)  # up to a token, with the state after it
        came_from = np.zeros((length, n_states, n_tokens), np.int64)  # the state and the token before
        for token in range(n_tokens):
            if automaton.first[token] >= 0:
                sums[0, automaton.first[token], token] = weight[(length - 1) % len(weight), token, n_tokens]
        for place in range(1, length):
            here = weight[(length - 1 - place) % len(weight)]
            for state in range(n_states):
                for before in range(n_tokens):
                    if sums[place - 1, state, before] == np.inf or (place == length - 1 and not automaton.asks[state]):
                        continue
                    following = automaton.follow[automaton.rule[state, before]]
                    for token in range(n_tokens):
                        after = following[token]
                        if after >= 0 and (place < length - 1 or token == automaton.query):
                            total = below(sums[place - 1, state, before] + here[token, before])
                            if total < sums[place, after, token]:
                                sums[place, after, token] = total
                                came_from[place, after, token] = state * n_tokens + before
        state = int(np.argmin(sums[-1, :, automaton.query]))
        token, totals[i] = automaton.query, sums[-1, state, automaton.query]
        for place in range(length - 1, 0, -1):
            state, token = divmod(came_from[place, state, token], n_tokens)
            walks[i, place - 1] = token
    return totals, walks
