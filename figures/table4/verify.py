"""Verifier of iGSM solutions: is a solution right, and if not, what are its errors?

The correct values come from the prompt (`Problem`), and a solution is judged by its words alone.
Its rules:

- Every step is written as `solution.py` says, and the solution ends with `ANS value EOS` (flat:
  with `EOS`).
- A step defines a parameter that exists and is not defined yet. Each letter is defined once in a
  solution. A letter that is used belongs to an earlier step, or to an earlier part of the same
  step.
- With the letters replaced by what they stand for, a step is the definition: the same operands,
  operator and constant. The terms of a sum and the factors of a product may come in any order, and
  a sum may be bracketed in any way. Nothing else may be rearranged: (5 + a) - b is not accepted for
  5 + (a - b), though the value is the same. Every clause is needed for the definition.
- Copied values are those of the letters and results are right modulo the modulus. With all of the
  above, the value of every step is correct.
- The last step defines the query (flat: some step does), and the value after ANS is its value.

A solution may compute parameters that the query does not depend on, if it does so correctly. They
are counted.

An error is reported once. Each step has at most one (`_judge_step`), and later steps are judged as
if that step had been right: they may copy the value written or the true one. If an error leaves a
letter without a meaning, the steps that use the letter are not compared with their definition.
Nothing is judged after a step that cannot be read.

Source: Ye et al. 2024, arXiv 2407.20311; their published checker lets some wrong constants and
operators pass.
"""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import add, mul, sub
from typing import Any, NamedTuple

from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.problem import Problem
from tasks.igsm.prompt import numbers

from .solution import Step, read_header, read_step, split

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

_OF_STEPS = (
    NONEXISTENT,
    REDEFINITION,
    DUPLICATE,
    UNDEFINED,
    MISSING,
    EXTRA,
    OPERATOR,
    COPY,
    ARITHMETIC,
)
ERRORS = (FORMAT, *_OF_STEPS, NOT_LAST)
"""All classes of errors."""

NO_ERROR = "no error"

_APPLY = {"+": add, "-": sub, "*": mul}

Expression = tuple[Any, ...] | int
"""A parameter, a constant, or (operator, part, part, ...) with expressions as parts."""


def expression(definition: Definition) -> Expression:
    """Return a definition as an expression in the form of `combine`."""
    if not definition.terms:
        return definition.constant or 0
    terms = [_chain("*", term) for term in definition.terms]
    inner = _chain(definition.joined, terms)
    if definition.constant is None:
        return inner
    return combine(definition.applied, definition.constant, inner)


def combine(operator: str, left: Expression, right: Expression) -> Expression:
    """Return `left operator right` in canonical form.

    Two expressions are equal if they differ only in the order of terms or factors, or in the
    brackets of sums. Nothing else is rearranged: (5 + a) - b is not 5 + (a - b).
    """
    if operator == "-":
        return ("-", left, right)
    parts: tuple[Expression, ...] = (left, right)
    if operator == "+":
        parts = (*_terms(left), *_terms(right))
    return (operator, *sorted(parts, key=repr))


def _chain(operator: str, parts: Sequence[Expression]) -> Expression:
    return reduce(lambda left, right: combine(operator, left, right), parts)


def _terms(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, tuple) and expression[0] == "+":
        return expression[1:]
    return (expression,)


class Verdict(NamedTuple):
    """Verdict on a solution.

    - `lenient`      some step is headed by the query and ends in its true value, whatever else is wrong;
    - `final`        the value after ANS is the true one (flat solutions have no ANS: same as `lenient`);
    - `errors`       classes of `ERRORS`, in the order of the steps;
    - `unnecessary`  the number of steps on parameters that the query does not depend on; these are
      not errors.
    """

    lenient: bool
    final: bool
    errors: tuple[str, ...]
    unnecessary: int

    @property
    def strict(self) -> bool:
        """True if there are no errors. Unnecessary parameters are allowed."""
        return not self.errors

    @property
    def minimal(self) -> bool:
        """True if there are no errors and no unnecessary parameters."""
        return not self.errors and not self.unnecessary


def verify(problem: Problem, solution: Sequence[str]) -> Verdict:
    """Judge the tokens after SOL. The solution ends at its first EOS; later tokens, such as
    padding, are ignored.
    """
    return _judge(problem, solution)[0]


def findings(problem: Problem, solution: Sequence[str]) -> list[str]:
    """Return the error of each step, then the error of the solution's end. Together these are the
    errors of `verify`.

    A step that only carries on an earlier error has "no error". Steps after one that cannot be read
    are "not judged".
    """
    verdict, of_steps, of_end, n_unread = _judge(problem, solution)
    if n_unread:
        return [*of_steps, FORMAT, *["not judged"] * n_unread]
    end = ", ".join(of_end) or NO_ERROR
    if not verdict.final:
        end += f"; the answer is {problem.answer}"
    return [*of_steps, end]


def _judge(problem: Problem, solution: Sequence[str]) -> tuple[Verdict, list[str], list[str], int]:
    """Return the verdict, the finding on each step that can be read, the errors of the end, and the
    unread steps.
    """
    words = list(solution)
    ended = "<eos>" in words
    if ended:
        words = words[: words.index("<eos>")]
    *parts, tail = split(words, ".")
    steps: list[Step] = []
    errors: list[str] = []
    of_steps: list[str] = []
    known: dict[str, _Symbol] = {}
    unnecessary = 0
    for written in parts:
        step = read_step(written, problem.format, numbers(problem.modulus))
        if step is None:
            break
        error = _judge_step(problem, step, known, {earlier.parameter for earlier in steps})
        _remember(problem, step, known)
        steps.append(step)
        unneeded = step.parameter in problem.definitions and step.parameter not in problem.necessary
        unnecessary += unneeded
        if error:
            errors.append(error)
        of_steps.append(error or NO_ERROR + ", not needed" * unneeded)
    n_unread = len(parts) - len(steps)
    end = [FORMAT]
    if ended and not n_unread:
        end = _judge_end(problem, steps, tail)
    lenient = any(_ends_in_truth(problem, written) for written in parts)
    final = lenient
    if not problem.flat:
        _, _, following = " ".join(words).partition("<ans> ")
        final = following.partition(" ")[0] == str(problem.answer)
    return Verdict(lenient, final, (*errors, *end), unnecessary), of_steps, end, n_unread


def _judge_end(problem: Problem, steps: list[Step], tail: list[str]) -> list[str]:
    """Judge the end of a solution: what follows the last step, and whether the query is where it
    should be.
    """
    match tail:
        case [] if problem.flat:
            answer = None
        case ["<ans>", value] if not problem.flat and value in numbers(problem.modulus):
            answer = value
        case _:
            return [FORMAT]
    errors = []
    asked = [step.parameter for step in (steps if problem.flat else steps[-1:])]
    # A step about a nonexistent parameter may have been meant for the query, and already has its
    # error.
    if problem.query not in asked and all(parameter in problem.definitions for parameter in asked):
        errors.append(NOT_LAST)
    written = {step.clauses[-1].value for step in steps if step.parameter == problem.query}
    if answer and written and answer not in written | {str(problem.answer)}:
        errors.append(COPY)
    return errors


def _ends_in_truth(problem: Problem, words: list[str]) -> bool:
    """Return whether the words of a step are headed by the query and end in its value."""
    if words[-1:] != [str(problem.answer)]:
        return False
    head = read_header(split(words, ";")[0], problem.format)
    return head is not None and head[0] == problem.query


class _Symbol(NamedTuple):
    """Meaning of a letter (None after an error) and the values that may be copied from it."""

    meaning: Expression | None
    values: frozenset[str]


def _judge_step(
    problem: Problem, step: Step, known: dict[str, _Symbol], defined: set[Parameter]
) -> str | None:
    """Return the error of a step, or None. `known` are the letters and `defined` the parameters of
    earlier steps.

    - `NONEXISTENT`, `REDEFINITION`: the prompt has no such parameter; an earlier step defines it.
    - `DUPLICATE`, `UNDEFINED`: a clause defines a letter that is taken; a clause uses a letter that
      is neither known nor defined by an earlier clause of the step.
    - With every letter replaced by what it stands for, the step must be the parameter's definition,
      sums and products in any order. If it is not: `MISSING` if an operand is missing (or was
      replaced), `EXTRA` if an operand occurs too often, else `OPERATOR`. It is also `EXTRA` if the
      step has more clauses than the definition costs.
    - `OPERATOR`, `COPY`, `ARITHMETIC`: a clause repeats the wrong operator, copies a value other
      than the letter's, or has the wrong result.
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


def _remember(problem: Problem, step: Step, known: dict[str, _Symbol]) -> None:
    """Add the letters of a step to the known ones.

    A later step that uses the step's own letter may copy the written value or the correct one, so
    that an error is reported only once. The letters of the step's parts stand for themselves, and
    no definition has them as operands. A letter that is defined twice has no known meaning.
    """
    for clause in step.clauses:
        meaning: Expression | None = (clause.symbol,)
        values = {clause.value}
        if clause.symbol == step.symbol:
            meaning = None
            if step.parameter in problem.definitions:
                meaning = step.parameter
                values.add(str(problem.values[meaning]))
        if clause.symbol in known:
            meaning = None
            values |= known[clause.symbol].values
        known[clause.symbol] = _Symbol(meaning, frozenset(values))


def _judge_letters(step: Step, known: dict[str, _Symbol], ints: dict[str, int]) -> str | None:
    defined: set[str] = set()
    for clause in step.clauses:
        if clause.symbol in known or clause.symbol in defined:
            return DUPLICATE
        if any(
            word not in known and word not in defined and word not in ints
            for word in clause.operands
        ):
            return UNDEFINED
        defined.add(clause.symbol)
    return None


def _judge_meaning(
    step: Step, known: dict[str, _Symbol], ints: dict[str, int], definition: Definition
) -> str | None:
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
                if meaning is None:  # cannot be judged; the error was reported at an earlier step
                    return None
                operands.append(meaning)
                used[meaning] += 1
        parts[clause.symbol] = (
            combine(clause.operator, *operands) if clause.operator else operands[0]
        )
    if parts[step.symbol] == expression(definition):
        if len(step.clauses) > definition.cost:
            return EXTRA
        return None
    needed: Counter[Expression] = Counter(definition.operands)
    if needed - used:
        return MISSING
    return EXTRA if used - needed else OPERATOR


def _judge_numbers(step: Step, known: dict[str, _Symbol], ints: dict[str, int]) -> str | None:
    parts: dict[str, str] = {}
    for clause in step.clauses:
        if clause.copied_operator != clause.operator:
            return OPERATOR
        for word, copied in zip(
            clause.operands, clause.copied, strict=False
        ):  # a constant alone is not repeated
            right = known[word].values if word in known else {parts.get(word, word)}
            if copied not in right:
                return COPY
        if clause.operator:
            first, second = (ints[copied] for copied in clause.copied)
            if _APPLY[clause.operator](first, second) % len(ints) != ints[clause.value]:
                return ARITHMETIC
        parts[clause.symbol] = clause.value
    return None
