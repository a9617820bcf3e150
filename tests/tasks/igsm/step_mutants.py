"""What can be wrong with whole steps and with single tokens, as in clause_mutants.py beside it. Loaded with `runpy`.

`REARRANGED` and `unnecessary` change a solution without making it wrong.
"""

import string


def used_before_its_step(case):
    found = []
    for i, step in enumerate(case.steps):
        for j in range(i + 1, len(case.steps) - 1):
            if any(step[0][-1] in clause[2:] for clause in case.steps[j][1:]):
                found.append((i, j))
    if not found:
        return None
    i, j = case.pick(found)
    case.steps.insert(j, case.steps.pop(i))
    return case.put_together()


def duplicate_symbol(case):
    if len(case.steps) < 2:
        return None
    i = case.rng.randrange(1, len(case.steps))
    old = case.steps[i][0][-1]
    new = case.pick(sorted({clause[0] for clause in case.clauses(steps=slice(0, i))}))
    at = -1 if case.natural else 2
    case.steps[i][0][at] = new
    for step in case.steps[i:]:
        for clause in step[1:]:
            clause[:] = [new if word == old else word for word in clause]
    return case.put_together()


def nonexistent_owner(nouns):
    def mutate(case):
        header = case.pick(case.steps)[0]
        category = nouns[header[1 if case.natural else 0]]
        strangers = [noun for noun, its in nouns.items() if its == category and noun not in case.prompt]
        header[1 if case.natural else 0] = case.pick(strangers)
        return case.put_together()

    return mutate


def nonexistent_edge(nouns):
    """Two items of the problem, in the right layers, without an edge."""

    def mutate(case):
        header = case.pick(case.steps)[0]
        owner, owned = case.names(header)
        if owned not in nouns:
            return None
        text = " ".join(case.prompt)
        start = "The number of each {} 's {} equals" if case.natural else "{} {} ="
        others = [
            word
            for word in sorted(set(case.prompt))
            if nouns.get(word) == nouns[owned] and start.format(owner, word) not in text
        ]
        if not others:
            return None
        header[3 if case.natural else 1] = case.pick(others)
        return case.put_together()

    return mutate


def redefinition(case):
    if len(case.steps) < 2:
        return None
    copied = case.pick(case.steps[:-1])
    letters = [clause[0] for clause in copied[1:]]
    free = sorted(set(string.ascii_letters) - case.letters())
    if len(free) < len(letters):
        return None
    new = dict(zip(letters, case.rng.sample(free, len(letters)), strict=True))
    keep = 5 if case.natural else 2
    header = [*copied[0][:keep], new[copied[0][-1]]]
    again = [header, *([new.get(word, word) for word in clause] for clause in copied[1:])]
    case.steps.insert(len(case.steps) - 1, again)
    return case.put_together()


def query_dropped(case):
    del case.steps[-1]
    return case.put_together() if case.steps else None


def step_after_the_query(case):
    return _unnecessary(case, len(case.steps))


def unnecessary(case):
    """Not wrong: a parameter computed that nothing needs."""
    return _unnecessary(case, 0)


def wrong_unnecessary(case):
    return _unnecessary(case, 0, wrong=True)


def _unnecessary(case, place, wrong=False):
    found, fresh = case.pick(case.unneeded_constants()), case.fresh()
    if not found or not fresh:
        return None
    (owner, owned), number = found
    number = case.other_number(number) if wrong else number
    case.steps.insert(place, [case.header(owner, owned, fresh), [fresh, "=", number]])
    return case.put_together()


def renamed(case):
    """Not wrong: other letters."""
    new = dict(zip(string.ascii_letters, case.rng.sample(string.ascii_letters, 52), strict=True))
    for step in case.steps:
        for i, part in enumerate(step):
            step[i] = [new.get(word, word) if len(word) == 1 else word for word in part]
    return case.put_together()


def turned_round(case):
    """Not wrong: the sides of sums and products exchanged."""
    for clause in case.clauses(lambda clause: case.is_binary(clause) and clause[3] != "-"):
        if case.rng.random() < 0.5:
            clause[2], clause[4], clause[6], clause[8] = clause[4], clause[2], clause[8], clause[6]
    return case.put_together()


def reordered(case):
    """Not wrong: the steps in another order in which each comes after what it uses."""
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
    return case.put_together()


REARRANGED = {"other letters": renamed, "sides exchanged": turned_round, "other order of steps": reordered}


def missing_step(case):
    if len(case.steps) < 2:
        return None
    del case.steps[case.rng.randrange(len(case.steps) - 1)]
    return case.put_together()


def truncated(case):
    return case.solution[: case.rng.randrange(len(case.solution))]


def wrong_answer(case):
    case.tail[1] = case.other_number(case.tail[1])
    return case.put_together()


def no_answer(case):
    case.tail = case.tail[2:]
    return case.put_together()


def garbage(case):
    words = list(case.solution)
    words[case.rng.randrange(len(words))] = "?"
    return words


def deleted(case):
    words = list(case.solution)
    del words[case.rng.randrange(len(words))]
    return words


def number_beyond(case):
    words = list(case.solution)
    words[case.pick(t for t, word in enumerate(words) if word.isdigit())] = str(case.modulus)
    return words
