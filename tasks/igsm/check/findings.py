"""Findings of the verifier in each step of an iGSM solution."""

from collections.abc import Sequence

from tasks.igsm.check.judge import FORMAT, NOT_LAST
from tasks.igsm.check.verify import verify
from tasks.igsm.problem import Problem
from tasks.igsm.solution import split

NO_ERROR = "no error"


def findings(problem: Problem, solution: Sequence[str]) -> list[str]:
    """Return the error of each step, and last that of the end of the solution; together, the errors of `verify`.

    "no error" also where an earlier error is carried on; "not judged" after a step that cannot be read.
    """
    whole = verify(problem, solution)
    *steps, _ = split(_before_end(solution), ".")
    ending = ["<eos>"] if problem.flat else ["<ans>", str(problem.answer), "<eos>"]
    found: list[str] = []
    read: list[str] = []
    known, unneeded = 0, 0
    for step in steps:
        read += [*step, "."]
        verdict = verify(problem, [*read, *ending])
        errors = [error for error in verdict.errors if error != NOT_LAST]  # more steps may follow
        needed = "" if verdict.unnecessary == unneeded else ", not needed"
        found.append(", ".join(errors[known:]) or NO_ERROR + needed)
        known, unneeded = len(errors), verdict.unnecessary
        if FORMAT in errors:
            return found + ["not judged"] * (len(steps) + 1 - len(found))
    answer = "" if whole.final else f"; the answer is {problem.answer}"
    return [*found, (", ".join(whole.errors[known:]) or NO_ERROR) + answer]


def _before_end(solution: Sequence[str]) -> list[str]:
    words = list(solution)
    return words[: words.index("<eos>")] if "<eos>" in words else words
