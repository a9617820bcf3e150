"""What can be wrong within a clause. Loaded with `runpy`.

Each function gets a `Case` (case.py beside it) and returns the tokens of a solution that is wrong in this one way, or
None where there is no place for it.
"""


def constant(case):
    clause = case.pick(case.clauses(lambda clause: case.has_constant(clause) or len(clause) == 3))
    if not clause:
        return None
    clause[2] = case.other_number(clause[2])
    if case.is_binary(clause):
        clause[6] = clause[2]
        case.recompute(clause)
    return case.put_together()


def constant_with_the_same_result(case):
    clause = case.pick(case.clauses(lambda c: case.has_constant(c) and c[3] == "*" and c[8] == "0"))
    if not clause:
        return None
    clause[2] = clause[6] = case.other_number(clause[2])
    return case.put_together()


def constant_in_the_letters(case):
    clause = case.pick(case.clauses(case.has_constant))
    if not clause:
        return None
    clause[2] = case.other_number(clause[2])
    return case.put_together()


def constant_in_the_copy(case):
    clause = case.pick(case.clauses(case.has_constant))
    if not clause:
        return None
    clause[6] = case.other_number(clause[6])
    case.recompute(clause)
    return case.put_together()


def operator(case):
    clause = case.pick(case.clauses(case.is_binary))
    if not clause:
        return None
    clause[3] = clause[7] = case.pick(sorted(set("+-*") - {clause[3]}))
    case.recompute(clause)
    return case.put_together()


def operator_with_the_same_result(case):
    found = [
        (clause, sign)
        for clause in case.clauses(case.is_binary)
        for sign in sorted(set("+-*") - {clause[3]})
        if case.result(sign, clause) == int(clause[10])
    ]
    if not found:
        return None
    clause, sign = case.pick(found)
    clause[3] = clause[7] = sign
    return case.put_together()


def operator_at(place):
    def mutate(case):
        clause = case.pick(case.clauses(case.is_binary))
        if not clause:
            return None
        clause[place] = case.pick(sorted(set("+-*") - {clause[place]}))
        return case.put_together()

    return mutate


def turned_difference(case):
    clause = case.pick(case.clauses(lambda c: case.is_binary(c) and c[3] == "-"))
    if not clause:
        return None
    clause[2], clause[4], clause[6], clause[8] = clause[4], clause[2], clause[8], clause[6]
    case.recompute(clause)
    return case.put_together()


def dropped_operand(case):
    known = case.values()
    single = [step for step in case.steps if len(step) == 2 and case.is_binary(step[1])]
    last = [
        step
        for step in case.steps
        if len(step) > 2 and step[-1][2] == step[-2][0] and step[-1][4] in known and step[-1][3] != "*"
    ]
    step = case.pick(single + last)
    if not step:
        return None
    clause = step[-1]
    if len(step) == 2:
        step[1] = clause[:2] + (clause[6:7] if clause[2].isdigit() else [clause[2], "=", clause[6]])
    else:
        del step[-1]
        step[-1][0] = clause[0]
    return case.put_together()


def added_operand(case):
    known = case.values()
    options = [i for i, step in enumerate(case.steps) if i > 0 and case.is_binary(step[-1])]
    fresh = case.fresh()
    if not options or not fresh:
        return None
    i = case.pick(options)
    step, letter = case.steps[i], case.pick([earlier[0][-1] for earlier in case.steps[:i]])
    clause = step[-1]
    step[-1] = [fresh, *clause[1:]]
    added = [clause[0], "=", fresh, "+", letter, "=", clause[10], "+", known[letter], "=", "0"]
    case.recompute(added)
    step.append(added)
    return case.put_together()


def replaced_operand(case):
    known = case.values()
    found = []
    for i, step in enumerate(case.steps):
        used = {word for clause in step[1:] for word in clause}
        other = [earlier[0][-1] for earlier in case.steps[:i] if earlier[0][-1] not in used]
        found += [(clause, place, other) for _, clause, place in case.operands(slice(i, i + 1)) if other]
    if not found:
        return None
    clause, place, other = case.pick(found)
    clause[place] = case.pick(other)
    clause[place + (4 if case.is_binary(clause) else 2)] = known[clause[place]]
    case.recompute(clause)
    return case.put_together()


def copied_value(recompute):
    def mutate(case):
        found = case.pick(case.operands())
        if not found:
            return None
        _, clause, place = found
        at = place + (4 if case.is_binary(clause) else 2)
        clause[at] = case.other_number(clause[at])
        if recompute:
            case.recompute(clause)
        return case.put_together()

    return mutate


def result(case):
    clause = case.pick(case.clauses(case.is_binary))
    if not clause:
        return None
    clause[10] = case.other_number(clause[10])
    return case.put_together()


def undefined_symbol(case):
    found, fresh = case.pick(case.operands()), case.fresh()
    if not found or not fresh:
        return None
    _, clause, place = found
    clause[place] = fresh
    return case.put_together()


def own_symbol(case):
    found = case.pick(case.operands())
    if not found:
        return None
    step, clause, place = found
    clause[place] = step[0][-1]
    return case.put_together()
