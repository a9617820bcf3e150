"""A correct solution of iGSM in parts, from which wrong solutions are made."""

import random
import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
Clause = list[str]

APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


class NoPlaceError(Exception):
    """A change cannot be applied to a solution."""


class Case:
    """A correct solution in parts: each step is a header and clauses, and each of these a list of words.

    "so" is removed, and a pair that is one token becomes two words.
    """

    def __init__(self, prompt: list[str], solution: list[str], modulus: int, rng: random.Random) -> None:
        stated = re.sub(r"(?:(?<=<bos> )|(?<=\. )|^)(\w+/\w+)(?! \?)", r"\1 =", " ".join(prompt)).replace("/", " ")
        self.prompt, self.solution, self.modulus, self.rng = stated.split(), solution, modulus, rng
        self.natural = solution[0] == "Define"
        self.pairs = "/" in solution[0]
        end = max(t for t, word in enumerate(solution) if word == ".") + 1
        body = " ".join(solution[:end]).removesuffix(" .").replace("; so ", "; ").replace("/", " ")
        self.steps = [[part.split() for part in step.split(" ; ")] for step in body.split(" . ")]
        self.tail = solution[end:]

    def put_together(self) -> list[str]:
        """Return the tokens of the current steps."""
        words: list[str] = []
        for header, *clauses in self.steps:
            words += ["/".join(header[:2]), *header[2:]] if self.pairs else header
            for clause in clauses[:-1]:
                words += [";", *clause]
            words += [";", *(["so"] if self.natural else []), *clauses[-1], "."]
        return words + self.tail

    def pick(self, options: Iterable[T]) -> T:
        """Return a random option. Raises `NoPlaceError` if there is none."""
        listed = list(options)
        if not listed:
            raise NoPlaceError
        return self.rng.choice(listed)

    def clauses(
        self, wanted: Callable[[Clause], bool] = lambda clause: True, steps: slice = slice(None)
    ) -> list[Clause]:
        return [clause for step in self.steps[steps] for clause in step[1:] if wanted(clause)]

    def letters(self) -> set[str]:
        return {clause[0] for clause in self.clauses()}

    def fresh(self) -> str:
        return self.pick(sorted(set(string.ascii_letters) - self.letters()))

    def values(self) -> dict[str, str]:
        """Return the value of each step's parameter, by its letter."""
        return {step[0][-1]: step[-1][-1] for step in self.steps}

    def other_number(self, word: str) -> str:
        return str((int(word) + self.rng.randrange(1, self.modulus)) % self.modulus)

    def result(self, sign: str, clause: Clause) -> int:
        """Return the correct result of a binary clause with this sign."""
        return APPLY[sign](int(clause[6]), int(clause[8])) % self.modulus

    def recompute(self, clause: Clause) -> None:
        if self.is_binary(clause):
            clause[10] = str(self.result(clause[7], clause))

    def names(self, header: list[str]) -> tuple[str, str]:
        """Return the parameter that a step's header names."""
        return (header[1], header[3]) if self.natural else (header[0], header[1])

    def header(self, owner: str, owned: str, letter: str) -> list[str]:
        return ["Define", owner, "'s", owned, "as", letter] if self.natural else [owner, owned, letter]

    @staticmethod
    def is_binary(clause: Clause) -> bool:
        return len(clause) == 11

    @staticmethod
    def has_constant(clause: Clause) -> bool:
        return Case.is_binary(clause) and clause[2].isdigit()

    def operands(self, steps: slice = slice(None)) -> list[tuple[list[Clause], Clause, int]]:
        """Return (step, clause, place) of every operand that is a parameter's letter."""
        known = self.values()
        return [
            (step, clause, place)
            for step in self.steps[steps]
            for clause in step[1:]
            for place in ((2, 4) if self.is_binary(clause) else (2,) if len(clause) == 5 else ())
            if clause[place] in known
        ]

    def unneeded_constants(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the parameters that a sentence sets to a number but the solution does not compute, with the number."""
        text = " ".join(self.prompt).replace("<bos> ", "")
        done = {self.names(header) for header, *_ in self.steps}
        for sentence in text.split(" . "):
            words = sentence.split()
            if self.natural and len(words) == 9 and words[-1].isdigit():
                pair, number = (words[4], words[6]), words[-1]
            elif not self.natural and len(words) == 4 and words[-1].isdigit():
                pair, number = (words[0], words[1]), words[-1]
            else:
                continue
            if pair not in done:
                yield pair, number
