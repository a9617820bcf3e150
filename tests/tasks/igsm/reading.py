"""A slow reader of an iGSM sequence in the compact format. It uses only the words."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from tasks.igsm.words import CATEGORIES, CATEGORY_OF

Parameter = tuple[str, str]

APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
LAYER = {category: layer for domain in CATEGORIES.values() for layer, category in enumerate(domain)}


class Equation(NamedTuple):
    """The right-hand side of an equation: constant sign (term + term), or term - term."""

    constant: int | None
    sign: str | None
    terms: list[Parameter]
    minus: bool


class Step(NamedTuple):
    """A step of the solution."""

    parameter: Parameter
    letter: str
    clauses: list[list[str]]


def chop(words: Sequence[str], end: str) -> list[list[str]]:
    """Split `words` into the parts that `end` closes."""
    parts: list[list[str]] = []
    part: list[str] = []
    for word in words:
        if word == end:
            parts.append(part)
            part = []
        else:
            part.append(word)
    assert not part
    return parts


class Row:
    """Sentences, question, steps and final value of one sequence; parameters are pairs of words."""

    def __init__(self, words: list[str], modulus: int) -> None:
        self.words, self.modulus = words, modulus
        assert words[0] == "<bos>"
        assert words[-1] == "<eos>"
        sol = words.index("<sol>")
        *sentences, _ = chop([*words[1 : sol - 3], "."], ".")
        self.sentences = [((s[0], s[1]), equation(s[2:])) for s in sentences]
        self.equations = dict(self.sentences)
        x, y, mark = words[sol - 3 : sol]
        assert mark == "?"
        self.query = x, y
        rest = words[sol + 1 : -1]
        self.final: str | None = None
        if "<ans>" in rest:
            assert rest[-2] == "<ans>"
            self.final = rest[-1]
            rest = rest[:-2]
        self.steps = [step(part) for part in chop(rest, ".")]
        self.clauses = [clause for s in self.steps for clause in s.clauses]
        self.defined = [s.parameter for s in self.steps]

    def is_abstract(self, parameter: Parameter) -> bool:
        return parameter[1] in LAYER

    def children(self, x: str) -> list[str]:
        return [y for (owner, y) in self.equations if owner == x]

    def level(self, parameter: Parameter) -> int:
        """Return g of an abstract parameter A(x,g)."""
        return LAYER[parameter[1]] - LAYER[CATEGORY_OF[parameter[0]]]

    def needs(self, parameter: Parameter) -> list[Parameter]:
        """Return the parameters from which a parameter is computed directly."""
        if not self.is_abstract(parameter):
            return list(self.equations[parameter].terms)
        x, category = parameter
        below = [(y, category) for y in self.children(x)] if self.level(parameter) > 1 else []
        return [(x, y) for y in self.children(x)] + below

    def ancestors(self, parameter: Parameter) -> set[Parameter]:
        """Return the parameter and everything that it depends on. Fails if it depends on itself."""
        found: set[Parameter] = set()
        path: list[Parameter] = []

        def visit(p: Parameter) -> None:
            assert p not in path, f"{p} depends on itself"
            if p not in found:
                path.append(p)
                for needed in self.needs(p):
                    visit(needed)
                path.pop()
                found.add(p)

        visit(parameter)
        return found

    def cost(self, parameter: Parameter) -> int:
        """Return the number of operations of a parameter, by the original code's rule."""
        if self.is_abstract(parameter):
            k = len(self.children(parameter[0]))
            return max(1, k - 1) if self.level(parameter) == 1 else max(1, 2 * k - 1)
        right = self.equations[parameter]
        return max(1, len(right.terms) + (right.constant is not None) - 1)

    def value(self, parameter: Parameter) -> int:
        """Return the value of a parameter, computed only from the sentences."""
        return self._values(parameter)

    @property
    def _values(self) -> Callable[[Parameter], int]:
        @cache
        def value(parameter: Parameter) -> int:
            if self.is_abstract(parameter):
                x, category = parameter
                if self.level(parameter) == 1:
                    total = sum(value((x, y)) for y in self.children(x))
                else:
                    total = sum(value((x, y)) * value((y, category)) for y in self.children(x))
                return total % self.modulus
            right = self.equations[parameter]
            values = [value(term) for term in right.terms]
            total = values[0] - values[1] if right.minus else sum(values)
            if right.constant is not None:
                total = APPLY[right.sign](right.constant, total) if right.sign is not None else right.constant
            return total % self.modulus

        return value

    def template(self) -> str:
        """Return the solution with I and A for names, 0 for numbers and a, b, c, ... for letters."""
        letters: dict[str, str] = {}
        alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        text = ""
        for s in self.steps:
            words = [s.letter]
            for clause in s.clauses:
                words += [";", *clause]
            text += "A" if self.is_abstract(s.parameter) else "I"
            for word in words:
                if word.isdigit():
                    text += "0"
                elif word in alphabet:
                    text += letters.setdefault(word, alphabet[len(letters)])
                else:
                    text += word
            text += "."
        return text


def equation(words: list[str]) -> Equation:
    """Return the equation of the words between "=" and the full stop."""
    assert words[0] == "="
    words = words[1:]
    constant: int | None = None
    sign: str | None = None
    if words[0].isdigit():
        constant, words = int(words[0]), words[1:]
        if words:
            sign, words = words[0], words[1:]
            assert sign in "+*"
            assert (words[0] == "(") == (len(words) > 2)
            if words[0] == "(":
                assert words[-1] == ")"
                words = words[1:-1]
    terms = [(words[i], words[i + 1]) for i in range(0, len(words), 3)]
    signs = words[2::3]
    assert set(signs) <= {"+"} or signs == ["-"]
    assert len(set(terms)) == len(terms)
    return Equation(constant, sign, terms, signs == ["-"])


def step(words: list[str]) -> Step:
    """Return the step of the words `X Y v ; clause ; clause`."""
    (x, y, letter), *clauses = chop([*words, ";"], ";")
    return Step((x, y), letter, clauses)
