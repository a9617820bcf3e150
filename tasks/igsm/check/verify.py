"""Verifier of iGSM solutions: is a solution right, and if not, what are its errors?

The truth is what the prompt says (`Problem`); of the solution only its words are read. What is right:

- Every step is written as `tasks.igsm.solution` says, and the row ends with `ANS value EOS` (flat: with `EOS`).
- A step defines a parameter that exists and is not defined yet. A letter is given once in a solution; a letter used
  is that of an earlier step, or of an earlier part of the same step.
- With the letters replaced by what they stand for, a step is the definition: the same operands, operator and constant.
  The terms of a sum and the factors of a product may come in any order, and a sum may be bracketed in any way.
  Nothing else may be rearranged: not 5 + (a - b) into (5 + a) - b, though the value is the same. There is no clause
  that the definition does not need.
- Copied values are those of the letters and results are right modulo the modulus. With all of the above, the value of
  every step equals the truth.
- The last step defines the query (flat: some step does), and the value after ANS is its value.

Parameters that the query does not depend on may be computed, if computed right; they are counted.

An error is reported once. Each step has at most one (`tasks.igsm.check.judge`), and later steps are judged as if it
had been right: they may copy the value written or the true one, and if an error has taken a letter's meaning, the
steps that use it are not compared with their definition. After a step that cannot be read nothing more is judged.

Source: Ye et al. 2024, arXiv 2407.20311; their published checker lets some wrong constants and operators pass.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tasks.igsm.check.judge import (
    ARITHMETIC,
    COPY,
    DUPLICATE,
    EXTRA,
    FORMAT,
    MISSING,
    NONEXISTENT,
    NOT_LAST,
    OPERATOR,
    REDEFINITION,
    UNDEFINED,
    Symbol,
    judge_step,
    remember,
)
from tasks.igsm.definition import Parameter
from tasks.igsm.problem import Problem
from tasks.igsm.prompt import numbers
from tasks.igsm.solution import Step, read_header, read_step, split

# fmt: off
ERRORS = (
    FORMAT, NONEXISTENT, REDEFINITION, DUPLICATE, UNDEFINED, MISSING, EXTRA, OPERATOR, COPY, ARITHMETIC, NOT_LAST
)
# fmt: on
"""All classes of errors."""


class Verdict(NamedTuple):
    """Verdict on a solution.

    - `lenient`      some step is headed by the query and ends in its true value, whatever else is wrong;
    - `final`        the value after ANS is the true one (flat, where there is no ANS: as `lenient`);
    - `errors`       classes of `ERRORS`, in the order of the steps;
    - `unnecessary`  the number of steps on parameters that the query does not depend on, which is no error.
    """

    lenient: bool
    final: bool
    errors: tuple[str, ...]
    unnecessary: int

    @property
    def strict(self) -> bool:
        """True without errors. Unnecessary parameters are allowed."""
        return not self.errors

    @property
    def minimal(self) -> bool:
        """True without errors and without unnecessary parameters."""
        return not self.errors and not self.unnecessary


def verify(problem: Problem, solution: Sequence[str]) -> Verdict:
    """Judge the tokens after SOL. The solution ends at its first EOS; what follows, such as padding, is not read."""
    words = list(solution)
    ended = "<eos>" in words
    words = words[: words.index("<eos>")] if ended else words
    *parts, tail = split(words, ".")
    steps: list[Step] = []
    for part in parts:
        step = read_step(part, problem.format, numbers(problem.modulus))
        if step is None:
            break
        steps.append(step)

    errors = _judge_steps(problem, steps)
    if len(steps) < len(parts) or not ended:
        errors.append(FORMAT)
    else:
        errors += _judge_end(problem, steps, tail)
    lenient = any(_ends_in_truth(problem, part) for part in parts)
    final = lenient if problem.flat else _after_ans(words) == str(problem.answer)
    about = [step.parameter for step in steps if step.parameter in problem.definitions]
    return Verdict(lenient, final, tuple(errors), sum(parameter not in problem.necessary for parameter in about))


def _judge_steps(problem: Problem, steps: list[Step]) -> list[str]:
    errors: list[str] = []
    known: dict[str, Symbol] = {}
    defined: set[Parameter] = set()
    for step in steps:
        error = judge_step(problem, step, known, defined)
        if error:
            errors.append(error)
        remember(problem, step, known)
        defined.add(step.parameter)
    return errors


def _judge_end(problem: Problem, steps: list[Step], tail: list[str]) -> list[str]:
    """Judge the end of a solution: what follows the last step, and whether the query is where it should be."""
    match tail:
        case [] if problem.flat:
            given = None
        case ["<ans>", value] if not problem.flat and value in numbers(problem.modulus):
            given = value
        case _:
            return [FORMAT]
    errors = []
    asked = [step.parameter for step in (steps if problem.flat else steps[-1:])]
    # A step about no parameter may have been meant for the query, and has its error.
    if problem.query not in asked and all(parameter in problem.definitions for parameter in asked):
        errors.append(NOT_LAST)
    written = {step.clauses[-1].value for step in steps if step.parameter == problem.query}
    if given and written and given not in written | {str(problem.answer)}:
        errors.append(COPY)
    return errors


def _ends_in_truth(problem: Problem, part: list[str]) -> bool:
    """Return whether the words of a step are headed by the query and end in its value."""
    if part[-1:] != [str(problem.answer)]:
        return False
    head = read_header(split(part, ";")[0], problem.format)
    return head is not None and head[0] == problem.query


def _after_ans(words: list[str]) -> str | None:
    following = words[words.index("<ans>") + 1 :] if "<ans>" in words else []
    return following[0] if following else None
