"""Test the claims of a stored certificate against the model.

The check shares with the solver the enclosed tables of the model (`ihlab.certify.tables`), the
margin of one sequence and the automata of the set. It lists the rows that must be there by itself.
With one head it tests every bound by shortest paths of its own. With several heads the bounds are
computed again (`ihlab.certify.judges`). `Certificate.export` writes a folder whose checker shares
nothing with this package.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ihlab.certify.certificate import PROVED, REFUTED, Certificate, dtype_of, model_digest, rows_of
from ihlab.certify.certify import answered_rightly, require_fits
from ihlab.certify.enclosures import Interval, below
from ihlab.certify.judges import OneHead, SeveralHeads, problems
from ihlab.certify.parts import left_out
from ihlab.certify.plain import longer, plain_copy
from ihlab.certify.sequences import Sequences
from ihlab.certify.walks import Array, PairTables, Question, compiled, nearest_rival, of_head
from ihlab.certify.with_mlp import judge_of
from tasks.config import ConfigError, require

SLACK = 1e-9
"""With several heads, a bound may be above the one found by this fraction of it. A sign never hangs
on it.
"""


def check(path: str | Path, model: Any) -> int:
    """Check every row of a certificate, and return the number of proved and refuted ones.

    Each row must be one of the set, and each of the set must be there once. In a proved row all
    margins must be positive. No margin of the set may be below a bound (with several heads: by more
    than 1e-9 of it). A margin must be that of the row's sequence, up to 1e-6, and the sequence must
    be in the set. A refuted sequence must be answered wrongly by the model, in real arithmetic and
    in its own, and a proved row's sequence rightly. Not tested: whether another sequence has a
    margin between a row's bound and its margin.

    `model` is a source as for `certify`. Raises `ConfigError` if the certificate is of another
    model, for the first row that does not hold, and for models with an MLP, whose bound is not
    checked.
    """
    certificate = Certificate.open(path)
    network = left_out(model, certificate.without)
    same = certificate.model == model_digest(network) and certificate.dtype == dtype_of(network)
    require(same, f"{path} is the certificate of another model.")
    require(
        network.cfg.mlp == "none",
        f"The model has mlp={network.cfg.mlp!r}, but the check has no bound of an MLP.",
    )
    require_fits(network, certificate.automata, certificate.lengths)
    _require_rows(path, certificate)
    longest = certificate.lengths[-1]
    plain, table = plain_copy(network, longest), certificate.table
    judge = judge_of(plain, certificate.automata[0].alphabet, longest)
    for some in problems(plain, certificate.lengths):
        of_question = table[table["length"].isin(some)].groupby(["query", "answer"])
        for sequences in certificate.automata:
            question = sequences.query, sequences.answer
            if question in of_question.groups:
                of_query = judge.tables(sequences.question.query, some[-1])
                failed = _failed(sequences, of_query, of_question.get_group(question), judge)
                require(failed is None, f"{path} does not hold: {failed}.")
    _require_answers(path, table, longer(network, longest))
    return int(table["verdict"].isin([PROVED, REFUTED]).sum())


def _require_rows(path: str | Path, certificate: Certificate) -> None:
    """Require exactly the rows of the set, with bounds where the options say so."""
    expected = rows_of(certificate.automata, certificate.lengths)
    rows = list(certificate.table[["length", "query", "answer"]].itertuples(index=False, name=None))
    require(
        expected == rows,
        f"{path} does not hold: its {len(rows)} rows are not the {len(expected)} of its set.",
    )
    known = certificate.table["bound"].notna() & certificate.table["margin"].notna()
    with_bound = certificate.lengths if certificate.margins else certificate.lengths[-1:]
    needed = certificate.table["length"].isin(with_bound)
    require(
        bool(known[needed].all()),
        f"{path} does not hold: a row has no bound, though the options ask for it.",
    )


def _failed(
    sequences: Sequences, tables: PairTables, rows: pd.DataFrame, judge: OneHead
) -> str | None:
    """Return what is wrong with the rows of a question, or None."""
    unbounded = rows[rows["bound"].isna() & (rows["verdict"] == PROVED)]
    if len(unbounded):
        positive = _hold(sequences, tables, unbounded["length"].tolist(), 0.0, True, judge)
        if not all(positive):
            return f"{_named(unbounded.iloc[positive.index(False)])} is not proved"
    each: Any = rows.itertuples()
    for row in each:
        wrong = _wrong_bound(sequences, tables, row, judge) or _wrong_sequence(
            sequences, tables, row
        )
        if wrong is not None:
            return f"{_named(row)} {wrong}"
    return None


def _wrong_bound(sequences: Sequences, tables: PairTables, row: Any, judge: OneHead) -> str | None:
    """Return what is wrong with a row's bound, or None."""
    if np.isnan(row.bound):
        return None
    if row.verdict == PROVED and not row.bound >= 0:
        return f"is called proved with a bound of {row.bound}"
    proved = row.verdict == PROVED
    if _hold(sequences, tables, [row.length], row.bound, proved, judge)[0]:
        return None
    return f"has a sequence whose margin may be below {row.bound}"


def _wrong_sequence(sequences: Sequences, tables: PairTables, row: Any) -> str | None:
    """Return what is wrong with a row's sequence and its margin, or None."""
    if not row.worst:
        lacks = row.verdict == REFUTED or not np.isnan(row.margin)
        return "names no sequence" if lacks else None
    if len(row.worst) != row.length or not sequences.holds(row.worst):
        return f"names {row.worst}, which is not a sequence of its set"
    walk = np.searchsorted(sequences.alphabet, row.worst)
    margin, _ = nearest_rival(tables, sequences.answer, walk)
    if not np.isclose(row.margin, margin, rtol=1e-6, atol=1e-6):
        return f"claims a margin of {row.margin}, but it is {margin}"
    certain = row.verdict != REFUTED or margin <= 0
    return None if certain else f"is called refuted, but the margin of its sequence is {margin}"


def _named(row: Any) -> str:
    return f"the row of {row.length} tokens, query {row.query}, answer {row.answer}"


def _require_answers(path: str | Path, table: pd.DataFrame, model: Any) -> None:
    """Require that the model answers the sequences of refuted rows wrongly, and of proved rows
    rightly.
    """
    known = table[(table["worst"].map(len) > 0) & table["verdict"].isin([PROVED, REFUTED])]
    for _, rows in known.groupby("length"):
        odd = rows[answered_rightly(model, rows) != (rows["verdict"] == PROVED)]
        if len(odd):
            raise ConfigError(
                f"{path} does not hold: the model answers the sequence of {_named(odd.iloc[0])} otherwise."
            )


def _hold(
    sequences: Sequences,
    tables: PairTables,
    lengths: list[int],
    level: float,
    positive: bool,
    judge: OneHead,
) -> list[bool]:
    """Return for which lengths every margin is at least the level, and above 0 if it must be
    `positive`.
    """
    if not isinstance(judge, SeveralHeads):
        shortest = _shortest_of_rivals(tables, sequences.question, np.array(lengths), level)
        strictly = positive and level <= 0
        return [weight > 0 or (weight == 0 and not strictly) for weight in shortest.tolist()]
    held, least = [], level - SLACK * abs(level)
    for length in lengths:
        again = judge.row(tables, sequences, length)
        assert again is not None
        held.append(again["bound"] >= least and (again["bound"] > 0 or not positive))
    return held


@compiled
def _fill(step: Array, mass: Interval, gain: Array, level: float, back: int) -> None:
    """Fill step [token, before] with the lengths, from below, of steps `back` positions before the
    query.
    """
    low, high = mass.low[back % len(mass.low)], mass.high[back % len(mass.low)]
    gained = gain[back % len(gain)]
    for token in range(step.shape[0]):
        for before in range(step.shape[1]):
            over = below(gained[token, before] - level)
            least = low[token, before] if over > 0 else high[token, before]
            step[token, before] = below(over * least)


@compiled
def _shortest(
    mass: Interval, gain: Array, level: float, question: Question, lengths: Array
) -> Array:
    """Return the length, from below, of the shortest path of each length."""
    first, query = question.first, question.query
    n_states, n_tokens = question.rule.shape
    weights, step = np.full(len(lengths), np.inf), np.empty((n_tokens, n_tokens + 1))
    rest, nearer = np.full((n_states, n_tokens), np.inf), np.full((n_states, n_tokens), np.inf)
    _fill(step, mass, gain, level, 0)
    for state in range(n_states):
        for before in range(n_tokens):
            allowed = question.follow[question.rule[state, before]]
            if question.asks[state] and allowed[query] >= 0:
                rest[state, before] = step[query, before]
    for back in range(1, lengths[-1]):
        _fill(step, mass, gain, level, back)
        begun = np.inf
        for token in range(n_tokens):
            if first[token] >= 0 and rest[first[token], token] < np.inf:
                begun = min(begun, below(step[token, n_tokens] + rest[first[token], token]))
        weights[lengths == back + 1] = begun
        for state in range(n_states):
            for before in range(n_tokens):
                allowed, least = question.follow[question.rule[state, before]], np.inf
                for token in range(n_tokens):
                    if allowed[token] >= 0:
                        least = min(least, step[token, before] + rest[allowed[token], token])
                nearer[state, before] = below(least) if least < np.inf else np.inf
        rest, nearer = nearer, rest
    return weights


@compiled
def _shortest_of_rivals(
    tables: PairTables, question: Question, lengths: Array, level: float
) -> Array:
    """Return the shortest path of each length over all rivals."""
    mass, weights = of_head(tables.mass, 0), np.full(len(lengths), np.inf)
    for rival in range(len(tables.direct.low)):
        if rival != question.answer:
            constant = below(tables.direct.low[question.answer] - tables.direct.high[rival])
            gain = tables.read.low[0, question.answer] - tables.read.high[0, rival]
            for i in range(gain.size):
                gain.flat[i] = below(below(gain.flat[i]) + constant)
            weights = np.minimum(weights, _shortest(mass, gain, level, question, lengths))
    return weights
