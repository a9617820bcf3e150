"""The sentences and the question of an iGSM prompt, read by regular expressions.

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

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from tasks.config import ConfigError, require, shown
from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.words import CATEGORY_OF, NOUNS, read_pair

Format = Literal["natural", "compact", "pairs"]


@dataclass(frozen=True)
class Prompt:
    """Contents of a prompt: its format, the definitions in the order of the sentences, and the query."""

    format: Format
    stated: dict[Parameter, Definition]
    query: Parameter


class _Grammar(NamedTuple):
    """The forms of a parameter, a sentence and a question. The groups `x` and `y` are the words of the parameter."""

    parameter: re.Pattern[str]
    sentence: re.Pattern[str]
    question: re.Pattern[str]


def read_prompt(tokens: Sequence[str], modulus: int) -> Prompt:
    """Read `BOS problem SOL`. The two marks are optional, and tokens after SOL are ignored.

    Raises `ConfigError` with the first sentence that does not have the format.
    """
    words = list(tokens[1:] if tokens and tokens[0] == "<bos>" else tokens)
    if "<sol>" in words:
        words = words[: words.index("<sol>")]
    format = _format_of(words)
    *sentences, question = re.split(r"(?<= \.) ", " ".join(words))
    stated: dict[Parameter, Definition] = {}
    for sentence in sentences:
        parameter, definition = _read_sentence(sentence, format, numbers(modulus))
        what = f"The prompt defines each {parameter[0]}'s {parameter[1]} again"
        require(parameter not in stated, f"{what}, but each needs exactly one sentence.")
        stated[parameter] = definition
    return Prompt(
        format, stated, _fit(_grammar(format).question, question, "the question", format)[1]
    )


def _format_of(words: Sequence[str]) -> Format:
    if words and words[0] in ("The", "How"):
        return "natural"
    return "pairs" if words and read_pair(words[0]) else "compact"


@cache
def numbers(modulus: int) -> dict[str, int]:
    """Return the words "0" .. str(modulus - 1) and their values."""
    return {str(number): number for number in range(modulus)}


@cache
def _grammar(format: Format) -> _Grammar:
    natural = format == "natural"
    name = {"natural": "each X 's Y", "compact": "X Y", "pairs": "X/Y"}[format]
    one = name.replace("X", r"\w+").replace("Y", r"\w+")
    if natural:
        several = f"the sum of {one}(?: , {one})* and {one}|the difference of {one} and {one}"
        applied, inner = "more than|times as much as", f"{one}|{several}"
    else:
        several = rf"{one}(?: \+ {one})+|{one} - {one}"
        applied, inner = r"[+*]", rf"{one}|\( (?:{several}) \)"
    right = rf"(?:(?P<number>\d+)(?: (?P<applied>{applied}) (?P<inner>{inner}))?|(?P<terms>{one}|{several}))"
    sentence = rf"The number of {name} equals {right} \." if natural else rf"{name} = {right} \."
    question = r"How many Y does each X have \?" if natural else rf"{name} \?"
    forms = (
        form.replace("X", r"(?P<x>\w+)").replace("Y", r"(?P<y>\w+)")
        for form in (sentence, question)
    )
    return _Grammar(re.compile(one.replace(r"\w+", r"(\w+)")), *map(re.compile, forms))


def _fit(
    form: re.Pattern[str], text: str, what: str, format: str
) -> tuple[re.Match[str], Parameter]:
    """Return the match of a whole sentence or question, and its parameter."""
    match = form.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"The prompt cannot be read: {shown(text)} is not {what} of the format {format}."
        )
    return match, _known(match["x"], match["y"], text)


def _known(x: str, y: str, text: str, instance: bool = False) -> Parameter:
    """Return the parameter of two words. Raises `ConfigError` unless x is a noun, and y a noun or a category."""
    for word, known in (
        (x, CATEGORY_OF),
        (y, CATEGORY_OF if instance or y in CATEGORY_OF else NOUNS),
    ):
        what = "a noun" if known is CATEGORY_OF else "a noun or a category"
        require(
            word in known,
            f"The prompt cannot be read at {shown(text)}: {shown(word)} is not {what}.",
        )
    return x, y


def _read_sentence(
    text: str, format: Format, numbers: dict[str, int]
) -> tuple[Parameter, Definition]:
    grammar = _grammar(format)
    match, (x, y) = _fit(grammar.sentence, text, "a sentence", format)
    number, applied = match["number"], match["applied"] or ""
    terms = match["inner"] or match["terms"] or ""
    require(
        number is None or number in numbers,
        f"The prompt cannot be read at {shown(text)}: {number} is not a number below the modulus.",
    )
    pairs = grammar.parameter.findall(terms)
    operands = [_known(owner, owned, text) for owner, owned in pairs]
    definition = Definition(
        terms=tuple((operand,) for operand in operands),
        joined="-" if " - " in terms or "difference" in terms else "+",
        constant=numbers.get(number),
        applied="*" if applied[:1] in ("*", "t") else "+",
    )
    return _known(x, y, text, instance=True), definition
