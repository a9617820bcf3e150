"""Judgement of one step of an iGSM solution, given the steps before it.

A step is compared with the truth in this order, and the first difference is its error: its parameter, its
letters, what the letters stand for, the numbers.
"""

from collections import Counter
from operator import add, mul, sub
from typing import NamedTuple

from tasks.igsm.definition import Definition, Expression, Parameter, combine
from tasks.igsm.problem import Problem
from tasks.igsm.prompt import numbers
from tasks.igsm.solution import Step

FORMAT = "format"
NONEXISTENT = "nonexistent parameter"
REDEFINITION = "redefinition"
DUPLICATE = "duplicate symbol"
UNDEFINED = "undefined symbol"
MISSING = "missing dependency"
EXTRA = "extra dependency"
OPERATOR = "wrong operator or constant"
COPY = "wrong copied value"
ARITHMETIC = "wrong arithmetic"
NOT_LAST = "query not last"

_APPLY = {"+": add, "-": sub, "*": mul}


class Symbol(NamedTuple):
    """Meaning of a letter (None: lost to an error) and the values that may be copied from it."""

    meaning: Expression | None
    values: frozenset[str]


def judge_step(problem: Problem, step: Step, known: dict[str, Symbol], defined: set[Parameter]) -> str | None:
    """Return the error of a step, None if it is right. `known`, `defined`: letters, parameters of earlier steps.

    - `NONEXISTENT`, `REDEFINITION`: the prompt has no such parameter; an earlier step defines it.
    - `DUPLICATE`, `UNDEFINED`: a clause gives a letter that is taken; it uses one that is neither known nor given by
      an earlier clause of the step.
    - With every letter replaced by what it stands for, the step must be the parameter's definition, sums and products
      in any order. If it is not: `MISSING` if an operand is not there (or was replaced), `EXTRA` if one is there too
      often, else `OPERATOR`. `EXTRA` too if there is a clause more than the definition costs.
    - `OPERATOR`, `COPY`, `ARITHMETIC`: a clause repeats another operator, copies a value that is not the letter's,
      or has the wrong result.
    """
    if step.parameter not in problem.definitions:
        return NONEXISTENT
    if step.parameter in defined:
        return REDEFINITION
    ints = numbers(problem.modulus)
    return (
        _judge_letters(step, known, ints)
        or _judge_meaning(step, known, ints, problem.definitions[step.parameter])
        or _judge_numbers(step, known, ints)
    )


def remember(problem: Problem, step: Step, known: dict[str, Symbol]) -> None:
    """Add the letters of a step to the known ones.

    From the step's own letter both the value written and the true one may be copied, so that an error is not
    reported again, whether or not it is carried on. The letters of its parts stand for themselves, which
    no definition has as an operand. A letter given twice has no known meaning.
    """
    for clause in step.clauses:
        meaning: Expression | None = (clause.symbol,)
        values = {clause.value}
        if clause.symbol == step.symbol:
            exists = step.parameter in problem.definitions
            meaning = step.parameter if exists else None
            values |= {str(problem.values[step.parameter])} if exists else set()
        if clause.symbol in known:
            meaning = None
            values |= known[clause.symbol].values
        known[clause.symbol] = Symbol(meaning, frozenset(values))


def _judge_letters(step: Step, known: dict[str, Symbol], ints: dict[str, int]) -> str | None:
    given: set[str] = set()
    for clause in step.clauses:
        if clause.symbol in known or clause.symbol in given:
            return DUPLICATE
        if any(word not in known and word not in given and word not in ints for word in clause.operands):
            return UNDEFINED
        given.add(clause.symbol)
    return None


def _judge_meaning(step: Step, known: dict[str, Symbol], ints: dict[str, int], definition: Definition) -> str | None:
    parts: dict[str, Expression] = {}
    used: Counter[Expression] = Counter()
    for clause in step.clauses:
        operands: list[Expression] = []
        for word in clause.operands:
            if word in parts:
                operands.append(parts[word])
            elif word in ints:
                operands.append(ints[word])
            else:
                meaning = known[word].meaning
                if meaning is None:  # cannot be judged, and an earlier step has its error
                    return None
                operands.append(meaning)
                used[meaning] += 1
        parts[clause.symbol] = combine(clause.operator, *operands) if clause.operator else operands[0]
    if parts[step.symbol] == definition.expression:
        return None if len(step.clauses) == definition.cost else EXTRA
    needed: Counter[Expression] = Counter(definition.operands)
    if needed - used:
        return MISSING
    return EXTRA if used - needed else OPERATOR


def _judge_numbers(step: Step, known: dict[str, Symbol], ints: dict[str, int]) -> str | None:
    parts: dict[str, str] = {}
    for clause in step.clauses:
        if clause.copied_operator != clause.operator:
            return OPERATOR
        for word, copied in zip(clause.operands, clause.copied, strict=False):  # a constant alone is not repeated
            right = known[word].values if word in known else {parts.get(word, word)}
            if copied not in right:
                return COPY
        if clause.operator:
            first, second = (ints[copied] for copied in clause.copied)
            if _APPLY[clause.operator](first, second) % len(ints) != ints[clause.value]:
                return ARITHMETIC
        parts[clause.symbol] = clause.value
    return None
