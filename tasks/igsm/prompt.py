"""The sentences and the question of an iGSM prompt, read word by word.

The formats (r a number, P a parameter):

    natural     The number of each X 's Y equals E .  ...  How many Y does each X have ?
                P is `each X 's Y`; E is r, P, `the sum of P , P and P`, `the difference of P and P`,
                `r more than E` or `r times as much as E`, where the inner E has no number
    compact     X Y = E .  ...  X Y ?
                P is `X Y`; E is r, P, `P + P + P`, `P - P`, `r + E` or `r * E`; the inner E is in brackets
                if and only if it has two operands or more
    pairs       X/Y = E .  ...  X/Y ?
                as compact, but P is the one token `X/Y`
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NoReturn

from tasks.config import ConfigError
from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.words import CATEGORY_OF, NOUNS, read_pair


@dataclass(frozen=True)
class Prompt:
    """Contents of a prompt: its format, the definitions in the order of the sentences, and the query."""

    format: Literal["natural", "compact", "pairs"]
    stated: dict[Parameter, Definition]
    query: Parameter


def read_prompt(tokens: Sequence[str], modulus: int) -> Prompt:
    """Read `BOS problem SOL`. The two marks are optional, and tokens after SOL are ignored.

    Raises `ConfigError` with the position of the first token that does not fit.
    """
    start = 1 if tokens and tokens[0] == "<bos>" else 0
    words = list(tokens[start:])
    if "<sol>" in words:
        words = words[: words.index("<sol>")]
    format = _format_of(words)
    reader = _Reader(words, format, numbers(modulus), start)
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
    """Reads words from a position on, in one of the three formats."""

    def __init__(self, words: list[str], format: str, numbers: dict[str, int], start: int) -> None:
        self.words = [*words, "the end"]
        self.natural, self.pairs = format == "natural", format == "pairs"
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

    def take(self, allowed: Container[str], expected: str) -> str:
        if self.word not in allowed:
            self.fail(expected)
        self.position += 1
        return self.words[self.position - 1]

    def expect(self, *words: str) -> None:
        for word in words:
            self.take((word,), repr(word))

    def one_of(self, *words: str) -> str:
        return self.take(words, " or ".join(map(repr, words)))

    def noun(self) -> str:
        return self.take(CATEGORY_OF, "a noun")

    def noun_or_category(self) -> str:
        return self.take(CATEGORY_OF if self.word in CATEGORY_OF else NOUNS, "a noun or a category")

    def at_question(self) -> bool:
        if self.natural:
            return self.word == "How"
        after = self.position + (1 if self.pairs else 2)
        return self.words[after : after + 1] == ["?"]

    def parameter(self, instance: bool = False) -> Parameter:
        """Read a parameter. With `instance` it must be a pair of nouns, because a sentence can define only these."""
        if self.pairs:
            pair = read_pair(self.word)
            if pair is None or (instance and pair[1] not in CATEGORY_OF):
                self.fail("a pair of nouns" if instance else "a pair")
            self.position += 1
            return pair
        if self.natural:
            self.expect("each")
        owner = self.noun()
        if self.natural:
            self.expect("'s")
        return owner, self.noun() if instance else self.noun_or_category()

    def sentence(self) -> tuple[Parameter, Definition]:
        if self.natural:
            self.expect("The", "number", "of")
        parameter = self.parameter(instance=True)
        self.expect("equals" if self.natural else "=")
        definition = self.definition()
        self.expect(".")
        return parameter, definition

    def question(self) -> Parameter:
        if not self.natural:
            parameter = self.parameter()
            self.expect("?")
            return parameter
        self.expect("How", "many")
        owned = self.noun_or_category()
        self.expect("does", "each")
        owner = self.noun()
        self.expect("have", "?")
        return owner, owned

    def definition(self) -> Definition:
        if self.word not in self.numbers:
            return Definition(*self.terms())
        constant = self.numbers[self.take(self.numbers, "a number")]
        if self.word == ".":
            return Definition(constant=constant)
        added, multiplied = ("more", "times") if self.natural else ("+", "*")
        applied: Literal["+", "*"] = "+" if self.one_of(added, multiplied) == added else "*"
        if self.natural:
            self.expect(*(["than"] if applied == "+" else ["as", "much", "as"]))
            return Definition(*self.terms(), constant, applied)
        if self.word != "(":
            return Definition(((self.parameter(),),), "+", constant, applied)
        self.expect("(")
        definition = Definition(*self.terms(), constant, applied)
        if len(definition.terms) == 1:
            self.fail("'+' or '-'")
        self.expect(")")
        return definition

    def terms(self) -> tuple[tuple[tuple[Parameter], ...], Literal["+", "-"]]:
        """Read parameters and the sign that joins them."""
        joined: Literal["+", "-"] = "+"
        if not self.natural:
            operands = [self.parameter()]
            joined = "-" if self.word == "-" else "+"
            while self.word == joined and (joined == "+" or len(operands) == 1):
                self.expect(joined)
                operands.append(self.parameter())
        elif self.word == "each":
            operands = [self.parameter()]
        elif self.word == "the":
            self.expect("the")
            joined = "+" if self.one_of("sum", "difference") == "sum" else "-"
            self.expect("of")
            operands = [self.parameter()]
            while joined == "+" and self.word == ",":
                self.expect(",")
                operands.append(self.parameter())
            self.expect("and")
            operands.append(self.parameter())
        else:
            self.fail("a number below the modulus, 'each' or 'the'")
        return tuple((operand,) for operand in operands), joined
