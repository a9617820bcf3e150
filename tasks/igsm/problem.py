"""An iGSM problem read from its prompt alone: structure, definitions, values. Nothing comes from the generator."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Literal

from tasks.config import ConfigError, require
from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.prompt import read_prompt
from tasks.igsm.words import CATEGORIES, CATEGORY_OF


@dataclass(frozen=True)
class Problem:
    """Everything that a prompt determines.

    - `format`       format of the prompt: "natural", "compact" or "pairs";
    - `flat`         whether it is igsm_flat: items without hierarchy and no abstract parameters;
    - `query`        the parameter in the question;
    - `layers`       category -> its items, from the top category to the bottom one, items in order of mention
                     (empty if flat);
    - `stated`       the instances I(x,y), each with its sentence, in the order of the sentences; as pairs (x, y)
                     they are the edges of the structure graph;
    - `definitions`  parameter -> Definition, for the stated instances and for A(x,g) of every item x and every
                     category below it, whether needed or not;
    - `values`       parameter -> value in 0 .. modulus - 1, for all defined parameters.

    A(x,1) = sum over y of I(x,y) and A(x,g>1) = sum over y of I(x,y) * A(y,g-1), where x -> y are edges; 0 if x has
    no edges.

    Source: Ye et al. 2024, arXiv 2407.20311.
    """

    modulus: int
    format: Literal["natural", "compact", "pairs"]
    flat: bool
    query: Parameter
    layers: dict[str, tuple[str, ...]]
    stated: tuple[Parameter, ...]
    definitions: dict[Parameter, Definition]
    values: dict[Parameter, int]

    @classmethod
    def parse(cls, tokens: Sequence[str], modulus: int, flat: bool = False) -> "Problem":
        """Read a prompt, `BOS problem SOL` (both marks are optional; tokens after SOL are ignored).

        Raises `ConfigError` if a sentence cannot be read, an edge does not lead one category down (unless
        `flat`), or a parameter is stated twice, not at all or in terms of itself.
        """
        require(modulus >= 2, f"modulus is {modulus}, but must be at least 2.")
        prompt = read_prompt(tokens, modulus)
        spoken = [
            prompt.query,
            *(operand for definition in prompt.stated.values() for operand in definition.operands),
        ]
        layers = {} if flat else _layers([*prompt.stated, *spoken])
        if not flat:
            _check_edges(prompt.stated)
        definitions = prompt.stated | _abstract(layers, prompt.stated)
        for parameter in spoken:
            if parameter not in definitions:
                raise ConfigError(
                    f"The prompt mentions {_name(parameter)}, but no sentence defines it."
                )
        values: dict[Parameter, int] = {}
        for parameter in _in_order(definitions):
            values[parameter] = definitions[parameter].value(values, modulus)
        stated = tuple(prompt.stated)
        read = (prompt.query, layers, stated, definitions, values)
        return cls(modulus, prompt.format, flat, *read)

    @property
    def answer(self) -> int:
        """Value of the query."""
        return self.values[self.query]

    @cached_property
    def dependencies(self) -> dict[Parameter, tuple[Parameter, ...]]:
        """Dependency graph: parameter -> its operands, for stated parameters, the query and all their dependencies.

        Abstract parameters that are not mentioned are left out.
        """
        mentioned = self._closure([*self.stated, self.query])
        return {
            known: definition.operands
            for known, definition in self.definitions.items()
            if known in mentioned
        }

    @cached_property
    def necessary(self) -> frozenset[Parameter]:
        """The query and everything it depends on."""
        return self._closure([self.query])

    def _closure(self, start: list[Parameter]) -> frozenset[Parameter]:
        """Return the parameters and everything that must be known to compute them."""
        closure, left = set(start), list(start)
        while left:
            new = set(self.definitions[left.pop()].operands) - closure
            closure |= new
            left.extend(new)
        return frozenset(closure)


def _name(parameter: Parameter) -> str:
    return f"each {parameter[0]}'s {parameter[1]}"


def _layers(spoken: Sequence[Parameter]) -> dict[str, tuple[str, ...]]:
    """Return category -> items of the parameters, categories from top to bottom."""
    items = dict.fromkeys(word for parameter in spoken for word in parameter if word in CATEGORY_OF)
    top = CATEGORY_OF[spoken[0][0]]
    domain = next(categories for categories in CATEGORIES.values() if top in categories)
    for item in items:
        if CATEGORY_OF[item] not in domain:
            raise ConfigError(
                f"The prompt mentions {item}, but a problem stays in one domain: {', '.join(domain)}."
            )
    layers = {}
    for category in domain:
        if members := tuple(item for item in items if CATEGORY_OF[item] == category):
            layers[category] = members
    return layers


def _check_edges(stated: dict[Parameter, Definition]) -> None:
    for owner, owned in stated:
        above, below = CATEGORY_OF[owner], CATEGORY_OF[owned]
        if (above, below) not in _STEPS_DOWN:
            raise ConfigError(
                f"The prompt states {_name((owner, owned))}, but {below} are not the category below {above}."
            )


_STEPS_DOWN = {step for categories in CATEGORIES.values() for step in pairwise(categories)}


def _abstract(
    layers: dict[str, tuple[str, ...]], stated: dict[Parameter, Definition]
) -> dict[Parameter, Definition]:
    """Define every abstract parameter: an item and a category below it."""
    if not layers:
        return {}
    children: dict[str, list[str]] = defaultdict(list)
    for owner, owned in stated:
        children[owner].append(owned)
    categories = list(layers)
    definitions = {}
    for depth, category in enumerate(categories):
        for item in layers[category]:
            for below in categories[depth + 1 :]:
                terms: list[tuple[Parameter, ...]] = [((item, child),) for child in children[item]]
                if below != categories[depth + 1]:
                    terms = [((item, child), (child, below)) for child in children[item]]
                definitions[item, below] = Definition(tuple(terms))
                if not terms:
                    definitions[item, below] = Definition(constant=0)
    return definitions


def _in_order(definitions: dict[Parameter, Definition]) -> list[Parameter]:
    """Sort the parameters so that each comes after its operands."""
    graph = {parameter: definition.operands for parameter, definition in definitions.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ConfigError(
            f"The prompt defines {_name(error.args[1][0])} in terms of itself."
        ) from None
