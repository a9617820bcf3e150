"""The generator of iGSM in plain Python: the baseline for the kernels' speed, and the oracle of their tests.

A parameter is ("I", x, y) or ("A", x, g); an item is (layer, number); the constant is "RNG".
"""

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tasks.igsm import IGSMTask
from tasks.igsm.words import CATEGORIES, LETTERS, NOUNS

Item = tuple[int, int]
Parameter = tuple[str, Item, object]
RNG = "RNG"


@dataclass
class Draft:
    """A problem in objects: `children` of each item, `order` of the solution, `operands` of each instance."""

    children: dict[Item, list[Item]]
    n_layers: int
    order: list[Parameter]
    operands: dict[Parameter, list]

    def needs(self, p: Parameter) -> list[Parameter]:
        kind, x, g = p
        if kind == "I":
            return [q for q in self.operands.get(p, []) if q != RNG]
        instances: list[Parameter] = [("I", x, y) for y in self.children[x]]
        return instances + ([("A", y, g - 1) for y in self.children[x]] if g > 1 else [])

    def cost(self, p: Parameter) -> int:
        kind, x, g = p
        if kind == "I":
            return max(1, len(self.operands.get(p, [])) - 1)
        k = len(self.children[x])
        return max(1, k - 1 if g == 1 else 2 * k - 1)

    def closure(self, p: Parameter) -> set[Parameter]:
        return {p}.union(*(self.closure(q) for q in self.needs(p)))

    @property
    def instances(self) -> list[Parameter]:
        return [("I", x, y) for x, below in self.children.items() for y in below]

    @property
    def abstract(self) -> list[Parameter]:
        return [("A", x, g) for x in self.children for g in range(1, self.n_layers - x[0])]


def draw_ops(task: IGSMTask, rng: random.Random) -> int:
    """Step A."""
    return task.most_ops if task.exact else min(rng.randint(1, task.most_ops), rng.randint(1, task.most_ops))


def draw_draft(task: IGSMTask, ops: int, rng: random.Random) -> Draft | None:
    """Steps B to G. None at a dead end."""
    limits = task.dimensions
    n = max(rng.randint(1, ops), rng.randint(1, ops))
    m = rng.randint(n, ops)
    r = (ops - 1) / (limits.most_edges - 1)

    def two_to(most: int) -> int:
        centres = {2: 0.2, 3: 0.5, 4: 0.8}
        sizes = range(2, most + 1)
        return rng.choices(sizes, [math.exp(-((r - centres[size]) ** 2)) for size in sizes])[0]

    d = two_to(limits.most_layers)
    w0, w1 = sorted((two_to(limits.most_width), two_to(limits.most_width)))
    low = (d - 1) * w0
    e = min(rng.randint(low, limits.most_edges), rng.randint(low, limits.most_edges), (d - 1) * w1**2)
    p = rng.random()
    for _ in range(1000):
        draft = draw_structure(d, w0, w1, e, p, rng)
        necessary = draw_necessary(draft, n, m, rng)
        kept = draw_order(draft, necessary, rng)
        if kept is not None:
            break
    else:
        return None
    if not draw_operands(draft, kept, ops - sum(draft.cost(q) for q in draft.order), rng):
        return None
    draw_others(draft, rng)
    return draft


def draw_structure(d: int, w0: int, w1: int, e: int, p: float, rng: random.Random) -> Draft:
    """Step C."""
    widths = [w0] * d
    while any(width < w1 for width in widths):
        if sum(a * b for a, b in pairwise(widths)) >= e and (sum(widths[1:]) == e or rng.random() >= p):
            break
        widths[rng.choice([i for i in range(d) if widths[i] < w1])] += 1
    items = [(i, k) for i in range(d) for k in range(widths[i])]
    children: dict[Item, list[Item]] = {item: [] for item in items}
    for y in items:
        if y[0] > 0:
            children[rng.choice([x for x in items if x[0] == y[0] - 1])].append(y)
    free = [(x, y) for x in items for y in items if y[0] == x[0] + 1 and y not in children[x]]
    for x, y in rng.sample(free, e - sum(widths[1:])):
        children[x].append(y)
    return Draft(children, d, [], {})


def draw_necessary(draft: Draft, n: int, m: int, rng: random.Random) -> set[Parameter]:
    """Step D."""
    budget = len(draft.instances)
    for x, below in draft.children.items():
        k, levels = len(below), draft.n_layers - x[0] - 1
        if levels > 0:
            budget += max(k - 1, min(k, 1)) + max(2 * k - 1, 0) * (levels - 1)
    budget = min(n, budget)
    chosen: set[Parameter] = set()
    while budget > 0:
        best: set[Parameter] = set()
        for g in range(1, draft.n_layers):
            open_ = [p for p in draft.abstract if p[2] == g and p not in chosen]
            if not open_:
                continue
            added = draft.closure(rng.choice(open_)) - chosen
            if sum(map(draft.cost, added)) > budget:
                break
            best = added
        if not best:
            break
        chosen |= best
        budget -= sum(map(draft.cost, best))
    rest = [p for p in draft.instances if p not in chosen]
    rng.shuffle(rest)
    missing = m - sum(map(draft.cost, chosen))
    return chosen | set(rest[: max(missing, 0)])


def draw_order(draft: Draft, necessary: set[Parameter], rng: random.Random) -> dict[Parameter, Parameter] | None:
    """Step E: fills `order`, and returns the operand that each of some instances must keep."""
    often, bias = rng.random(), abs(rng.gauss(0, 1))
    remaining, stack = sorted(necessary, key=repr), set()
    kept: dict[Parameter, Parameter] = {}
    backward: list[Parameter] = []
    while remaining:
        needed = {q for p in remaining if p[0] == "A" for q in draft.needs(p)}
        options = [p for p in remaining if p not in needed and (not backward or p in stack)]
        if not options:
            return None
        v = rng.choice(options)
        backward.append(v)
        remaining.remove(v)
        stack.discard(v)
        if v[0] == "A":
            stack |= set(draft.needs(v))
        elif remaining:
            needed = {q for p in remaining if p[0] == "A" for q in draft.needs(p)}
            free = [p for p in remaining if p not in needed]
            must = not any(p in stack for p in free)
            if must or rng.random() < often:
                pool = free if must else remaining
                weights = [math.exp(bias * (p[0] == "A") + bias * (p not in stack)) for p in pool]
                kept[v] = rng.choices(pool, weights)[0]
                stack.add(kept[v])
    draft.order = backward[::-1]
    return kept


def draw_operands(draft: Draft, kept: dict[Parameter, Parameter], surplus: int, rng: random.Random) -> bool:
    """Step F."""
    order = draft.order
    room = {i: max(min(i + 1, 4) - 2, 0) for i, p in enumerate(order) if p[0] == "I"}
    extra = dict.fromkeys(room, 0)
    for _ in range(surplus):
        open_ = [i for i in room if extra[i] < room[i]]
        if not open_:
            return False
        extra[rng.choice(open_)] += 1
    for i in room:
        size = min(extra[i] + 2 if extra[i] else rng.choice((1, 2)), i + 1, 4)
        fixed = [kept[order[i]]] if order[i] in kept else []
        draft.operands[order[i]] = choose_operands(size, order[:i], fixed, True, rng)
    return True


def choose_operands(
    size: int, pool: list[Parameter], fixed: list[Parameter], redrawn: bool, rng: random.Random
) -> list:
    """Return `size` operands from the pool and the constant, including the fixed ones.

    `redrawn`: the constant may still be drawn with the others if its coin flip left it out.
    """
    if size == len(pool) + 1:
        return [RNG, *pool]
    chosen: list = list(fixed)
    if size > len(chosen) and rng.random() < 0.5:
        chosen.append(RNG)
    rest = [q for q in [*pool, *([RNG] if redrawn else [])] if q not in chosen]
    return chosen + rng.sample(rest, size - len(chosen))


def draw_others(draft: Draft, rng: random.Random) -> None:
    """Step G."""
    others = [p for p in draft.instances if p not in draft.order]
    rng.shuffle(others)
    done: list[Parameter] = []
    independent: list[Parameter] = []
    for p in others:
        known = set(draft.order) | set(done)
        for a in sorted(draft.abstract, key=lambda q: q[2]):
            if known.issuperset(draft.needs(a)):
                known.add(a)
        alone = rng.random() < 0.5
        pool = independent if alone else sorted(known, key=repr)
        size = 1
        while size < 4 and rng.random() < 0.5:
            size += 1
        draft.operands[p] = choose_operands(min(size, len(pool) + 1), pool, [], False, rng)
        done.append(p)
        if alone:
            independent.append(p)


def draw_row(task: IGSMTask, rng: random.Random) -> list[str]:
    """Return one sequence of words in the compact format: steps A to K. Needs 3 or more operations."""
    ops = draw_ops(task, rng)
    while True:
        draft = draw_draft(task, ops, rng)
        if draft is None:
            continue
        words, template = _write(draft, task.language.modulus, task, rng)
        bucket = int(hashlib.sha256(template.encode()).hexdigest(), 16) % 23
        if (bucket >= 16) == (task.split == "test"):
            return words


def _write(draft: Draft, modulus: int, task: IGSMTask, rng: random.Random) -> tuple[list[str], str]:
    """Steps I to K."""
    size = task.dimensions
    categories = rng.choice(list(CATEGORIES.values())[: size.domains])
    start = rng.randint(0, 4 - draft.n_layers)
    pools = [rng.choice(NOUNS[c][: size.pools])[: size.pool_size] for c in categories[start : start + draft.n_layers]]
    names: dict[Item, str] = {}
    for i, pool in enumerate(pools):
        layer = [x for x in draft.children if x[0] == i]
        names |= dict(zip(layer, rng.sample(pool, len(layer)), strict=True))

    def pair(p: Parameter) -> list[str]:
        kind, x, y = p
        return [names[x], names[y] if kind == "I" else categories[start + x[0] + y]]

    right = {p: _wording(operands, modulus, rng) for p, operands in draft.operands.items()}
    sentences = []
    for p, (constant, sign, terms, minus) in right.items():
        inner: list[str] = []
        for q in terms:
            inner += (["-" if minus else "+"] if inner else []) + pair(q)
        if constant is not None and len(terms) > 1:
            inner = ["(", *inner, ")"]
        head = [] if constant is None else [str(constant), sign] if terms else [str(constant)]
        sentences.append([*pair(p), "=", *head, *inner, "."])
    rng.shuffle(sentences)
    words = ["<bos>", *(word for sentence in sentences for word in sentence), *pair(draft.order[-1]), "?", "<sol>"]

    letters = iter(rng.sample(LETTERS, len(LETTERS)))
    symbol: dict[Parameter, tuple[str, int]] = {}
    short: dict[str, str] = {}
    template = ""
    for p in draft.order:
        clauses = list(_clauses(p, draft, right, symbol))
        names_of = [next(letters) for _ in clauses]
        step: list[str] = [names_of[-1]]
        values: list[tuple[str, int]] = []
        for name, (sign, *operands) in zip(names_of, clauses, strict=True):
            a, b = (values[q] if isinstance(q, int) else q for q in operands)
            value = _apply(sign, a[1], b[1] if b else 0) % modulus
            if a[0].isdigit() and b is None:
                step += [";", name, "=", str(value)]
            elif b is None:
                step += [";", name, "=", a[0], "=", str(value)]
            else:
                step += [";", name, "=", a[0], sign, b[0], "=", str(a[1]), sign, str(b[1]), "=", str(value)]
            values.append((name, value))
        symbol[p] = values[-1]
        words += [*pair(p), *step, "."]
        template += p[0]
        for word in step:
            known = word in LETTERS and short.setdefault(word, LETTERS[len(short)])
            template += known or ("0" if word.isdigit() else word)
        template += "."
    return [*words, "<ans>", str(symbol[draft.order[-1]][1]), "<eos>"], template


def _wording(operands: list, modulus: int, rng: random.Random) -> tuple[int | None, str, list[Parameter], bool]:
    """Return step I: the constant, its sign, the terms, and whether the second is subtracted."""
    terms = [q for q in operands if q != RNG]
    rng.shuffle(terms)
    minus = len(terms) == 2 and rng.random() < 0.5
    if RNG not in operands:
        return None, "", terms, minus
    if terms and rng.random() < 0.5:
        return rng.randint(1, modulus - 1), "*", terms, minus
    return rng.randint(0, modulus - 1), "+", terms, minus


def _clauses(p: Parameter, draft: Draft, right: dict, symbol: dict) -> Iterator[tuple]:
    """Yield each clause's sign and two operands: (letter, value), or the index of an earlier clause of the step."""
    kind, x, g = p
    if kind == "I":
        constant, sign, terms, minus = right[p]
        parts: list = [symbol[q] for q in terms]
    else:
        constant, sign, minus = None, "", False
        parts = [symbol["I", x, y] for y in draft.children[x]]
        if g > 1:
            for i, y in enumerate(draft.children[x]):
                yield "*", parts[i], symbol["A", y, g - 1]
            parts = list(range(len(parts)))
    n = len(parts) if kind == "A" and g > 1 else 0
    if not parts:
        yield "", (str(constant or 0), constant or 0), None
        return
    if len(parts) == 1 and constant is None:
        if n == 0:
            yield "", parts[0], None
        return
    left = parts[0]
    for part in parts[1:]:
        yield "-" if minus else "+", left, part
        left = n
        n += 1
    if constant is not None:
        yield sign, (str(constant), constant), left


def _apply(sign: str, a: int, b: int) -> int:
    return a - b if sign == "-" else a * b if sign == "*" else a + b
