"""The two graphs of an iGSM problem as lines of text."""

from graphlib import TopologicalSorter
from itertools import pairwise

from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.problem import Problem


def structure_text(problem: Problem) -> str:
    """Return the structure as text: the items of each category except the last, each with its items one category below.

    Harbours have Ships
      Bergen: Sloop, Ketch
      Riga: nothing
    """
    if problem.flat:
        return "A flat problem has no structure."
    lines = []
    for upper, lower in pairwise(problem.layers):
        lines.append(f"{upper} have {lower}")
        for item in problem.layers[upper]:
            owned = [y for x, y in problem.stated if x == item]
            lines.append(f"  {item}: {', '.join(owned) or 'nothing'}")
    return "\n".join(lines)


def dependency_text(problem: Problem) -> str:
    """Return the dependencies as text: a line per parameter, after its operands. The last needed one is the query.

    needed
      Riga's Ketch   =  5 <- 5
      Bergen's Ketch = 12 <- 7 + Riga's Ketch
    ? Bergen's Ships = 12 <- Bergen's Ketch

    After the query come the stated parameters that it does not depend on, and the totals that these use.
    """
    ordered = list(TopologicalSorter(problem.dependencies).static_order())
    width = max(map(len, map(name, ordered)))
    digits = len(str(problem.modulus - 1))
    needed, others = ["needed"], ["not needed"]
    for parameter in ordered:
        mark = "?" if parameter == problem.query else " "
        value = f"{problem.values[parameter]:{digits}}"
        line = f"{mark} {name(parameter):{width}} = {value} <- {formula(problem.definitions[parameter])}"
        if parameter in problem.necessary:
            needed.append(line)
        else:
            others.append(line)
    return "\n".join(needed + others * (len(others) > 1))


def name(parameter: Parameter) -> str:
    """Name a parameter: "Bergen's Sloop"."""
    return f"{parameter[0]}'s {parameter[1]}"


def formula(definition: Definition) -> str:
    """Write the definition with names: "5 * (Bergen's Sloop - Riga's Sloop)".

    Several terms are bracketed if they are combined with a constant.
    """
    terms = [" * ".join(map(name, term)) for term in definition.terms]
    inner = f" {definition.joined} ".join(terms)
    if definition.constant is None:
        return inner
    if not terms:
        return str(definition.constant)
    if len(terms) > 1:
        inner = f"({inner})"
    return f"{definition.constant} {definition.applied} {inner}"
