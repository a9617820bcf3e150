"""Every kind of wrong solution, made from right ones by moving words about. Loaded with `runpy`.

`mutants` gives a table from each kind to (class of its error, function of a `Case`). Nothing here reads with the code
that is tested.
"""

import random
import runpy
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
Case = runpy.run_path(str(HERE / "case.py"))["Case"]
clauses = SimpleNamespace(**runpy.run_path(str(HERE / "clause_mutants.py")))
steps = SimpleNamespace(**runpy.run_path(str(HERE / "step_mutants.py")))
REARRANGED, unnecessary = steps.REARRANGED, steps.unnecessary


def mutants(nouns):
    """Kind -> (class of the error, function). `nouns` maps each noun to its category."""
    operator_class = "wrong operator or constant"
    return {
        "constant": (operator_class, clauses.constant),
        "constant, same result": (operator_class, clauses.constant_with_the_same_result),
        "constant, among the letters only": (operator_class, clauses.constant_in_the_letters),
        "constant, in the copy only": ("wrong copied value", clauses.constant_in_the_copy),
        "operator": (operator_class, clauses.operator),
        "operator, same result": (operator_class, clauses.operator_with_the_same_result),
        "operator, among the letters only": (operator_class, clauses.operator_at(3)),
        "operator, in the copy only": (operator_class, clauses.operator_at(7)),
        "difference turned round": (operator_class, clauses.turned_difference),
        "operand dropped": ("missing dependency", clauses.dropped_operand),
        "operand replaced": ("missing dependency", clauses.replaced_operand),
        "operand added": ("extra dependency", clauses.added_operand),
        "copied value": ("wrong copied value", clauses.copied_value(recompute=True)),
        "copied value, old result": ("wrong copied value", clauses.copied_value(recompute=False)),
        "result": ("wrong arithmetic", clauses.result),
        "symbol never defined": ("undefined symbol", clauses.undefined_symbol),
        "symbol of the step itself": ("undefined symbol", clauses.own_symbol),
        "symbol before its step": ("undefined symbol", steps.used_before_its_step),
        "step missing": ("undefined symbol", steps.missing_step),
        "symbol given twice": ("duplicate symbol", steps.duplicate_symbol),
        "owner not in the problem": ("nonexistent parameter", steps.nonexistent_owner(nouns)),
        "edge not in the problem": ("nonexistent parameter", steps.nonexistent_edge(nouns)),
        "step repeated": ("redefinition", steps.redefinition),
        "query's step missing": ("query not last", steps.query_dropped),
        "step after the query's": ("query not last", steps.step_after_the_query),
        "unnecessary step, wrong": (operator_class, steps.wrong_unnecessary),
        "answer": ("wrong copied value", steps.wrong_answer),
        "answer missing": ("format", steps.no_answer),
        "truncated": ("format", steps.truncated),
        "garbage token": ("format", steps.garbage),
        "token deleted": ("format", steps.deleted),
        "number beyond the modulus": ("format", steps.number_beyond),
    }


def mutate(kind, table, prompt, solution, modulus, seed):
    """A mutant of one kind, or None."""
    return table[kind][1](Case(list(prompt), list(solution), modulus, random.Random(f"{kind} {seed}")))
