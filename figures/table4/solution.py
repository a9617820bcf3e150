"""The steps of an iGSM solution, parsed as written. This module does not judge whether they are
right.

The formats of a step that computes `each X 's Y` as v (a step has any number of clauses for parts,
such as w):

    natural     Define X 's Y as v ; w = a + b = 3 + 4 = 7 ; so v = 2 * w = 2 * 7 = 14 .
    compact     X Y v ; w = a + b = 3 + 4 = 7 ; v = 2 * w = 2 * 7 = 14 .
    pairs       X/Y v ; w = a + b = 3 + 4 = 7 ; v = 2 * w = 2 * 7 = 14 .
                or with pairs in place of v, a and b: X/Y ; w = P/Q + R/S = 3 + 4 = 7 ; X/Y = 2 * w
                = 2 * 7 = 14 .

The last clause, which gives v, may also be a constant alone, `v = 5`, or a copy, `v = a = 3`.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from tasks.igsm.definition import Parameter
from tasks.igsm.words import CATEGORY_OF, LETTERS, NOUNS, read_pair

_OPERATORS = frozenset("+-*")
_LETTERS = frozenset(LETTERS)


def is_symbol(token: str) -> bool:
    """Return whether a token can stand for a value in a solution: a letter, or a pair that is one
    token.
    """
    return token in _LETTERS or read_pair(token) is not None


class Clause(NamedTuple):
    """One assignment of a step: `symbol = operands = copied = value`.

    `operands` are letters or numbers with the operator between them (no operator if there is one
    operand). `copied` are the numbers written for them, with the operator repeated; empty for a
    constant alone.
    """

    symbol: str
    operands: tuple[str, ...]
    operator: str
    copied: tuple[str, ...]
    copied_operator: str
    value: str


class Step(NamedTuple):
    """A parameter, its letter, and the clauses that compute it. The last clause defines that
    letter.
    """

    parameter: Parameter
    symbol: str
    clauses: tuple[Clause, ...]


def split(tokens: Sequence[str], mark: str) -> list[list[str]]:
    """Split tokens at each `mark` into runs: one run more than there are marks."""
    parts, start = [], 0
    for _ in range(tokens.count(mark)):
        end = tokens.index(mark, start)
        parts.append(list(tokens[start:end]))
        start = end + 1
    return [*parts, list(tokens[start:])]


def read_step(tokens: Sequence[str], format: str, numbers: Container[str]) -> Step | None:
    """Read a step without its final ".". Returns None if it does not have the format."""
    header, *parts = split(tokens, ";")
    named = read_header(header, format)
    if named is None or not parts:
        return None
    parameter, symbol = named
    if format == "natural":
        if parts[-1][:1] != ["so"]:
            return None
        parts[-1] = parts[-1][1:]
    clauses = [read_clause(clause, numbers) for clause in parts]
    read = [clause for clause in clauses if clause is not None]
    if len(read) < len(clauses) or read[-1].symbol != symbol:
        return None
    if not all(clause.operator and clause.symbol in _LETTERS for clause in read[:-1]):
        return None
    return Step(parameter, symbol, tuple(read))


def read_header(tokens: Sequence[str], format: str) -> tuple[Parameter, str] | None:
    """Read the parameter of a step and its symbol (a letter or a pair). Returns None if they cannot
    be read.
    """
    match format, *tokens:
        case ["natural", "Define", owner, "'s", owned, "as", symbol] | [
            "compact",
            owner,
            owned,
            symbol,
        ]:
            if (
                owner in CATEGORY_OF
                and (owned in CATEGORY_OF or owned in NOUNS)
                and symbol in _LETTERS
            ):
                return (owner, owned), symbol
        case ["pairs", pair, *given]:
            parameter, symbol = read_pair(pair), given[0] if given else pair
            if parameter is not None and len(given) < 2 and (symbol in _LETTERS or not given):
                return parameter, symbol
    return None


def read_clause(tokens: Sequence[str], numbers: Container[str]) -> Clause | None:
    """Read a clause. Returns None if it is not binary, a copy or a constant alone."""
    match tokens:
        case [symbol, "=", value]:
            clause = Clause(symbol, (value,), "", (), "", value)
        case [symbol, "=", operand, "=", value] if is_symbol(operand):
            clause = Clause(symbol, (operand,), "", (value,), "", value)
        case [symbol, "=", left, operator, right, "=", first, repeated, second, "=", value]:
            if operator not in _OPERATORS or repeated not in _OPERATORS:
                return None
            clause = Clause(symbol, (left, right), operator, (first, second), repeated, value)
        case _:
            return None
    written = (*clause.copied, clause.value)
    if not is_symbol(clause.symbol) or not all(word in numbers for word in written):
        return None
    return clause if all(word in numbers or is_symbol(word) for word in clause.operands) else None
