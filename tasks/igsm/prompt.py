"""The sentences and the question of an iGSM prompt, read word by word.

The formats (r a number, P a parameter):

    natural     The number of each X 's Y equals E .  ...  How many Y does each X have ?
                P is `each X 's Y`; E is r, P, `the sum of P , P and P`, `the difference of P and P`,
                `r more than E` or `r times as much as E`, where the inner E has no number
    compact     X Y = E .  ...  X Y ?
                P is `X Y`; E is r, P, `P + P + P`, `P - P`, `r + E` or `r * E`; the inner E is in brackets
                exactly if it has two operands or more
    pairs       X/Y = E .  ...  X/Y ?
                as compact, but P is the one token `X/Y`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NoReturn

from tasks.config import ConfigError
from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.words import CATEGORY_OF, NOUNS, read_pair


@dataclass(frozen=True)
class Prompt:
    """Contents of a prompt: its format, the stated definitions in the order of the sentences, the query."""

    format: Literal["natural", "compact", "pairs"]
    stated: dict[Parameter, Definition]
    query: Parameter


def read_prompt(tokens: Sequence[str], modulus: int) -> Prompt:
    """Read `BOS problem SOL`; the two marks may be missing, and what follows SOL is not read.

    Raises `ConfigError` with the position of the first token that does not fit.
    """
    start = 1 if tokens and tokens[0] == "<bos>" else 0
    words = list(tokens[start:])
    if "<sol>" in words:
        words = words[: words.index("<sol>")]
    format = _format_of(words)
    reader = _READERS[format](words, numbers(modulus), start)
    stated: dict[Parameter, Definition] = {}
    while not reader.at_question():
        at = reader.position
        parameter, definition = reader.sentence()
        if parameter in stated:
            raise ConfigError(
                f"The prompt defines each {parameter[0]}'s {parameter[1]} again at token {at + start}, "
                "but each needs exactly one sentence."
            )
        stated[parameter] = definition
    query = reader.question()
    if reader.position < len(words):
        reader.fail("the end after the question")
    return Prompt(format, stated, query)


def _format_of(words: Sequence[str]) -> Literal["natural", "compact", "pairs"]:
    if words and words[0] in ("The", "How"):
        return "natural"
    return "pairs" if words and read_pair(words[0]) else "compact"


@cache
def numbers(modulus: int) -> dict[str, int]:
    """Return the words "0" .. str(modulus - 1) and their values."""
    return {str(number): number for number in range(modulus)}


class _Reader:
    """Reader of words at a position, with the rules that all formats share."""

    def __init__(self, words: list[str], numbers: dict[str, int], start: int) -> None:
        self.words = [*words, "the end"]
        self.numbers = numbers
        self.start = start
        self.position = 0

    @property
    def word(self) -> str:
        return self.words[self.position]

    def fail(self, expected: str) -> NoReturn:
        raise ConfigError(
            f"The prompt cannot be read at token {self.position + self.start}, {self.word!r}: expected {expected}."
        )

    def expect(self, *words: str) -> None:
        for word in words:
            if self.word != word:
                self.fail(repr(word))
            self.position += 1

    def one_of(self, *words: str) -> str:
        if self.word not in words:
            self.fail(" or ".join(map(repr, words)))
        self.position += 1
        return self.words[self.position - 1]

    def noun(self) -> str:
        if self.word not in CATEGORY_OF:
            self.fail("a noun")
        self.position += 1
        return self.words[self.position - 1]

    def thing(self) -> str:
        if self.word not in CATEGORY_OF and self.word not in NOUNS:
            self.fail("a noun or a category")
        self.position += 1
        return self.words[self.position - 1]

    def number(self) -> int:
        self.position += 1
        return self.numbers[self.words[self.position - 1]]

    def parameter(self) -> Parameter:
        raise NotImplementedError


class _Natural(_Reader):
    def at_question(self) -> bool:
        return self.word == "How"

    def parameter(self) -> Parameter:
        self.expect("each")
        owner = self.noun()
        self.expect("'s")
        return owner, self.thing()

    def sentence(self) -> tuple[Parameter, Definition]:
        self.expect("The", "number", "of", "each")
        owner = self.noun()
        self.expect("'s")
        parameter = owner, self.noun()
        self.expect("equals")
        definition = self.expression()
        self.expect(".")
        return parameter, definition

    def question(self) -> Parameter:
        self.expect("How", "many")
        owned = self.thing()
        self.expect("does", "each")
        owner = self.noun()
        self.expect("have", "?")
        return owner, owned

    def expression(self) -> Definition:
        if self.word not in self.numbers:
            return self.unnumbered(None, "+")
        constant = self.number()
        if self.word == ".":
            return Definition(constant=constant)
        if self.one_of("more", "times") == "more":
            self.expect("than")
            return self.unnumbered(constant, "+")
        self.expect("as", "much", "as")
        return self.unnumbered(constant, "*")

    def unnumbered(self, constant: int | None, applied: Literal["+", "*"]) -> Definition:
        if self.word != "the":
            if self.word != "each":
                self.fail("a number below the modulus, 'each' or 'the'")
            return Definition(((self.parameter(),),), constant=constant, applied=applied)
        self.expect("the")
        joined: Literal["+", "-"] = "+" if self.one_of("sum", "difference") == "sum" else "-"
        self.expect("of")
        operands = [self.parameter()]
        while joined == "+" and self.word == ",":
            self.expect(",")
            operands.append(self.parameter())
        self.expect("and")
        operands.append(self.parameter())
        return Definition(tuple((operand,) for operand in operands), joined, constant, applied)


class _Compact(_Reader):
    def at_question(self) -> bool:
        return self.words[self.position + 2 : self.position + 3] == ["?"]

    def parameter(self) -> Parameter:
        return self.noun(), self.thing()

    def instance(self) -> Parameter:
        return self.noun(), self.noun()

    def sentence(self) -> tuple[Parameter, Definition]:
        parameter = self.instance()
        self.expect("=")
        definition = self.expression()
        self.expect(".")
        return parameter, definition

    def question(self) -> Parameter:
        parameter = self.parameter()
        self.expect("?")
        return parameter

    def expression(self) -> Definition:
        if self.word not in self.numbers:
            return self.unnumbered(None, "+")
        constant = self.number()
        if self.word == ".":
            return Definition(constant=constant)
        applied: Literal["+", "*"] = "+" if self.one_of("+", "*") == "+" else "*"
        if self.word != "(":
            return Definition(((self.parameter(),),), constant=constant, applied=applied)
        self.expect("(")
        definition = self.unnumbered(constant, applied)
        if len(definition.terms) == 1:
            self.fail("'+' or '-'")
        self.expect(")")
        return definition

    def unnumbered(self, constant: int | None, applied: Literal["+", "*"]) -> Definition:
        operands = [self.parameter()]
        joined: Literal["+", "-"] = "+"
        if self.word == "-":
            self.expect("-")
            operands.append(self.parameter())
            joined = "-"
        while joined == "+" and self.word == "+":
            self.expect("+")
            operands.append(self.parameter())
        return Definition(tuple((operand,) for operand in operands), joined, constant, applied)


class _Pairs(_Compact):
    def at_question(self) -> bool:
        return self.words[self.position + 1 : self.position + 2] == ["?"]

    def parameter(self) -> Parameter:
        parameter = read_pair(self.word)
        if parameter is None:
            self.fail("a pair")
        self.position += 1
        return parameter

    def instance(self) -> Parameter:
        parameter = read_pair(self.word)
        if parameter is None or parameter[1] not in CATEGORY_OF:
            self.fail("a pair of nouns")
        return self.parameter()


_READERS: dict[str, type[_Natural | _Compact]] = {"natural": _Natural, "compact": _Compact, "pairs": _Pairs}
