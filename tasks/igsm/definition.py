"""Definition of an iGSM parameter: a constant and other parameters, joined by +, - and *."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

Parameter = tuple[str, str]
"""(X, Y), "each X 's Y". Y is a noun for an instance and a category word for an abstract parameter."""


@dataclass(frozen=True)
class Definition:
    """How a parameter is computed: `constant applied (term joined term ...)`. A term is a product of parameters.

    - `terms`     one parameter per term if a sentence defines it, and for A(x,1) = sum over y of I(x,y);
                  two per term, I(x,y) and A(y,g-1), for A(x,g>1) = sum over y of I(x,y) * A(y,g-1);
                  no terms for a constant alone;
    - `joined`    "+" (sum) or "-" (difference, of two terms);
    - `constant`  None if there is no constant; 0, without terms, for an abstract parameter of a childless item;
    - `applied`   how a constant combines with the terms: "+" ("more than") or "*" ("times as much as").
    """

    terms: tuple[tuple[Parameter, ...], ...] = ()
    joined: Literal["+", "-"] = "+"
    constant: int | None = None
    applied: Literal["+", "*"] = "+"

    @property
    def operands(self) -> tuple[Parameter, ...]:
        """Parameters of the terms, in their order."""
        return tuple(chain(*self.terms))

    @property
    def cost(self) -> int:
        """Number of binary clauses that compute the parameter: operands and constant minus one, and at least 1."""
        return max(1, len(self.operands) + (self.constant is not None) - 1)

    def value(self, values: Mapping[Parameter, int], modulus: int) -> int:
        """Return the parameter's value in 0 .. modulus - 1, given the values of its operands."""
        terms = [math.prod(values[factor] for factor in term) for term in self.terms]
        inner = sum(terms)
        if self.joined == "-":
            inner = terms[0] - terms[1]
        constant = self.constant or 0
        if self.constant is not None and self.applied == "*":
            return constant * inner % modulus
        return (constant + inner) % modulus
