"""Every kind of wrong solution, made from correct ones by changing words, without the tested code.

Each function changes a `Case` in one way, or returns the changed words. It raises `NoPlaceError` if it cannot.
"""

import random
import string

from tasks.igsm.words import CATEGORY_OF
from tests.tasks.igsm.case import Case, NoPlaceError


def changed(function, prompt, solution, modulus, seed):
    """Return the solution after a change by one of the functions below; None if it cannot be applied."""
    case = Case(prompt, solution, modulus, random.Random(seed))
    try:
        words = function(case)
    except NoPlaceError:
        return None
    return case.put_together() if words is None else words


# Within a clause


def constant(case):
    clause = case.pick(case.clauses(lambda clause: case.has_constant(clause) or len(clause) == 3))
    clause[2] = case.other_number(clause[2])
    if case.is_binary(clause):
        clause[6] = clause[2]
        case.recompute(clause)


def constant_with_the_same_result(case):
    clause = case.pick(case.clauses(lambda c: case.has_constant(c) and c[3] == "*" and c[8] == "0"))
    clause[2] = clause[6] = case.other_number(clause[2])


def constant_in_the_copy(case):
    clause = case.pick(case.clauses(case.has_constant))
    clause[6] = case.other_number(clause[6])
    case.recompute(clause)


def operator(case):
    clause = case.pick(case.clauses(case.is_binary))
    clause[3] = clause[7] = case.pick(sorted(set("+-*") - {clause[3]}))
    case.recompute(clause)


def operator_with_the_same_result(case):
    found = [
        (clause, sign)
        for clause in case.clauses(case.is_binary)
        for sign in sorted(set("+-*") - {clause[3]})
        if case.result(sign, clause) == int(clause[10])
    ]
    clause, sign = case.pick(found)
    clause[3] = clause[7] = sign


def operator_in_the_copy(case):
    clause = case.pick(case.clauses(case.is_binary))
    clause[7] = case.pick(sorted(set("+-*") - {clause[7]}))


def turned_difference(case):
    clause = case.pick(case.clauses(lambda c: case.is_binary(c) and c[3] == "-"))
    clause[2], clause[4], clause[6], clause[8] = clause[4], clause[2], clause[8], clause[6]
    case.recompute(clause)


def dropped_operand(case):
    known = case.values()
    single = [step for step in case.steps if len(step) == 2 and case.is_binary(step[1])]
    last = [
        step
        for step in case.steps
        if len(step) > 2 and step[-1][2] == step[-2][0] and step[-1][4] in known and step[-1][3] != "*"
    ]
    step = case.pick(single + last)
    clause = step[-1]
    if len(step) == 2:
        step[1] = clause[:2] + (clause[6:7] if clause[2].isdigit() else [clause[2], "=", clause[6]])
    else:
        del step[-1]
        step[-1][0] = clause[0]


def added_operand(case):
    known = case.values()
    options = [i for i, step in enumerate(case.steps) if i > 0 and case.is_binary(step[-1])]
    fresh = case.fresh()
    i = case.pick(options)
    step, letter = case.steps[i], case.pick([earlier[0][-1] for earlier in case.steps[:i]])
    clause = step[-1]
    step[-1] = [fresh, *clause[1:]]
    added = [clause[0], "=", fresh, "+", letter, "=", clause[10], "+", known[letter], "=", "0"]
    case.recompute(added)
    step.append(added)


def replaced_operand(case):
    known = case.values()
    found = []
    for i, step in enumerate(case.steps):
        used = {word for clause in step[1:] for word in clause}
        other = [earlier[0][-1] for earlier in case.steps[:i] if earlier[0][-1] not in used]
        found += [(clause, place, other) for _, clause, place in case.operands(slice(i, i + 1)) if other]
    clause, place, other = case.pick(found)
    clause[place] = case.pick(other)
    clause[place + (4 if case.is_binary(clause) else 2)] = known[clause[place]]
    case.recompute(clause)


def copied_value(case):
    _, clause, place = case.pick(case.operands())
    place += 4 if case.is_binary(clause) else 2
    clause[place] = case.other_number(clause[place])
    case.recompute(clause)


def result(case):
    clause = case.pick(case.clauses(case.is_binary))
    clause[10] = case.other_number(clause[10])


def undefined_symbol(case):
    _, clause, place = case.pick(case.operands())
    clause[place] = case.fresh()


# Whole steps


def used_before_its_step(case):
    found = []
    for i, step in enumerate(case.steps):
        for j in range(i + 1, len(case.steps) - 1):
            if any(step[0][-1] in clause[2:] for clause in case.steps[j][1:]):
                found.append((i, j))
    i, j = case.pick(found)
    case.steps.insert(j, case.steps.pop(i))


def duplicate_symbol(case):
    i = case.pick(range(1, len(case.steps)))
    old = case.steps[i][0][-1]
    new = case.pick(sorted({clause[0] for clause in case.clauses(steps=slice(0, i))}))
    at = -1 if case.natural else 2
    case.steps[i][0][at] = new
    for step in case.steps[i:]:
        for clause in step[1:]:
            clause[:] = [new if word == old else word for word in clause]


def nonexistent_edge(case):
    """Name two items of the problem in the right layers, but without an edge."""
    header = case.pick(case.steps)[0]
    owner, owned = case.names(header)
    if owned not in CATEGORY_OF:
        raise NoPlaceError
    text = " ".join(case.prompt)
    start = "The number of each {} 's {} equals" if case.natural else "{} {} ="
    header[3 if case.natural else 1] = case.pick(
        word
        for word in sorted(set(case.prompt))
        if CATEGORY_OF.get(word) == CATEGORY_OF[owned] and start.format(owner, word) not in text
    )


def redefinition(case):
    copied = case.pick(case.steps[:-1])
    letters = [clause[0] for clause in copied[1:]]
    free = sorted(set(string.ascii_letters) - case.letters())
    if len(free) < len(letters):
        raise NoPlaceError
    new = dict(zip(letters, case.rng.sample(free, len(letters)), strict=True))
    keep = 5 if case.natural else 2
    header = [*copied[0][:keep], new[copied[0][-1]]]
    again = [header, *([new.get(word, word) for word in clause] for clause in copied[1:])]
    case.steps.insert(len(case.steps) - 1, again)


def query_dropped(case):
    del case.steps[-1]
    if not case.steps:
        raise NoPlaceError


def step_after_the_query(case):
    unnecessary(case, len(case.steps))


def unnecessary(case, place=0):
    """Still correct: compute a parameter that nothing needs."""
    ((owner, owned), number), fresh = case.pick(case.unneeded_constants()), case.fresh()
    case.steps.insert(place, [case.header(owner, owned, fresh), [fresh, "=", number]])


def renamed(case):
    """Still correct: use other letters."""
    new = dict(zip(string.ascii_letters, case.rng.sample(string.ascii_letters, 52), strict=True))
    for step in case.steps:
        for i, part in enumerate(step):
            step[i] = [new.get(word, word) if len(word) == 1 else word for word in part]


def turned_round(case):
    """Still correct: exchange the sides of sums and products."""
    for clause in case.clauses(lambda clause: case.is_binary(clause) and clause[3] != "-"):
        if case.rng.random() < 0.5:
            clause[2], clause[4], clause[6], clause[8] = clause[4], clause[2], clause[8], clause[6]


def reordered(case):
    """Still correct: change the order of steps so that each still comes after the steps that it uses."""
    left, done, order = case.steps[:-1], set(), []
    of_steps = set(case.values())
    while left:
        step = case.pick(
            step for step in left if all(word in done or word not in of_steps for c in step[1:] for word in c[2:])
        )
        left.remove(step)
        done.add(step[0][-1])
        order.append(step)
    case.steps = [*order, case.steps[-1]]


def missing_step(case):
    del case.steps[case.pick(range(len(case.steps) - 1))]


def truncated(case):
    return case.solution[: case.rng.randrange(len(case.solution))]


def wrong_answer(case):
    case.tail[1] = case.other_number(case.tail[1])


def no_answer(case):
    case.tail = case.tail[2:]


REARRANGED = {"other letters": renamed, "sides exchanged": turned_round, "other order of steps": reordered}
"""Changes after which a solution is still correct."""

MUTANTS = {
    "constant": ("wrong operator or constant", constant),
    "constant, same result": ("wrong operator or constant", constant_with_the_same_result),
    "constant, in the copy only": ("wrong copied value", constant_in_the_copy),
    "operator": ("wrong operator or constant", operator),
    "operator, same result": ("wrong operator or constant", operator_with_the_same_result),
    "operator, in the copy only": ("wrong operator or constant", operator_in_the_copy),
    "difference turned round": ("wrong operator or constant", turned_difference),
    "operand dropped": ("missing dependency", dropped_operand),
    "operand replaced": ("missing dependency", replaced_operand),
    "operand added": ("extra dependency", added_operand),
    "copied value": ("wrong copied value", copied_value),
    "result": ("wrong arithmetic", result),
    "symbol never defined": ("undefined symbol", undefined_symbol),
    "symbol before its step": ("undefined symbol", used_before_its_step),
    "step missing": ("undefined symbol", missing_step),
    "symbol given twice": ("duplicate symbol", duplicate_symbol),
    "edge not in the problem": ("nonexistent parameter", nonexistent_edge),
    "step repeated": ("redefinition", redefinition),
    "query's step missing": ("query not last", query_dropped),
    "step after the query's": ("query not last", step_after_the_query),
    "answer": ("wrong copied value", wrong_answer),
    "answer missing": ("format", no_answer),
    "truncated": ("format", truncated),
}
"""For each kind of mistake, its error class and the function that makes it."""
