"""Depo, Brevo and Mano again, in plain Python: how a sequence is drawn, and what its answers are."""

import operator
import random
from collections.abc import Iterator

import networkx as nx

from tasks import IGNORE, BrevoTask, DepoTask, ManoTask

OPERATORS = (operator.add, operator.sub, operator.mul)


def depo_row(task: DepoTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return the tokens and targets of one sequence."""
    names: list[list[int]] = []
    while len(names) < task.names:
        inner, endings = _parts(task)
        name = [rng.choice(inner) for _ in range(rng.randint(*task.name_length) - 1)] + [rng.choice(endings)]
        if name not in names:
            names.append(name)
    tokens = [task.max_hops + 1]
    for i in rng.sample(range(task.names), task.names):
        tokens += names[i] + names[(i + 1) % task.names]
    targets = [IGNORE] * len(tokens)
    for i in rng.sample(range(task.names), task.names):
        k = rng.randint(1, task.max_hops)
        name, answer = names[i], names[(i + k) % task.names]
        if len(tokens) + 1 + len(name) + len(answer) > task.length:
            break
        tokens += [k, *name, *answer]
        targets += [IGNORE] * len(name) + answer + [IGNORE]
    padding = task.length - len(tokens)
    return tokens + [0] * padding, targets + [IGNORE] * padding


def _parts(task: DepoTask) -> tuple[range, range]:
    """Return the ids inside names and at their end."""
    first = task.max_hops + 2
    border = first + (task.vocab_size - first) // 2 if task.name_length[1] > 1 else first
    return range(first, border), range(border, task.vocab_size)


def depo_answers(task: DepoTask, tokens: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield position, target and hops of each answer, by following the pairs one after another."""
    endings, words, start = _parts(task)[1], [], 1
    for t, token in enumerate(tokens):
        if token in endings:
            words.append((start, tuple(tokens[start : t + 1])))
            start = t + 1
    pairs, queries = words[: 2 * task.names], words[2 * task.names :]
    successor = {x: y for (_, x), (_, y) in zip(pairs[::2], pairs[1::2], strict=True)}
    assert len(successor) == task.names == len(set(successor.values()))
    for (_, query), (t, answer) in zip(queries[::2], queries[1::2], strict=True):
        k, *name = query
        for _ in range(k):
            name = successor[tuple(name)]
        assert answer == tuple(name)
        yield from ((t - 1 + i, token, k) for i, token in enumerate(answer))


def brevo_row(task: BrevoTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return the tokens and targets of one sequence."""
    ids = rng.sample(range(4, task.vocab_size), task.vertices)
    parents: dict[int, list[int]] = {v: [] for v in ids}
    children: dict[int, list[int]] = {v: [] for v in ids}
    for i in range(rng.randint(1, (task.vertices - 1) // 4 + 1), task.vertices):
        free = [u for u in ids[:i] if len(children[u]) < 4]
        parents[ids[i]] = rng.sample(free, rng.randint(1, min(4, len(free))))
        for u in parents[ids[i]]:
            children[u].append(ids[i])
    edges = [(u, v) for v in ids for u in parents[v]]
    rng.shuffle(edges)
    tokens = [1, *(token for edge in edges for token in edge), 2, ids[-1], 3]
    targets = [IGNORE] * (len(tokens) - 1)
    needed = {ids[-1]}
    for v in reversed(ids):
        needed.update(parents[v] if v in needed else ())
    answer: list[int] = []
    while len(answer) < len(needed):
        answer.append(rng.choice([v for v in needed - {*answer} if {*answer}.issuperset(parents[v])]))
    padding = task.length - len(tokens) - len(answer)
    return tokens + answer + [0] * padding, targets + answer + [IGNORE] * (padding + 1)


def brevo_graph(tokens: list[int]) -> nx.DiGraph:
    """Return what the query, its last vertex, depends on, with edges from a dependency to what depends on it."""
    graph, query = nx.DiGraph(), tokens[tokens.index(2) + 1]
    edges = tokens[1 : tokens.index(2)]
    graph.add_edges_from(zip(edges[::2], edges[1::2], strict=True))
    return graph.subgraph(nx.ancestors(graph, query) | {query})


def mano_row(task: ManoTask, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return the tokens and targets of one sequence; there can be more tokens than positions."""
    tokens: list[int] = []
    targets: list[int] = []
    while len(tokens) < task.length:
        n = rng.randint(1, task.max_operations)
        written, value = _expression(n, task.modulus, rng)
        tokens += [task.modulus + 3 + n, *written, task.modulus + 3, value]
        targets += [IGNORE] * (len(written) + 1) + [value, IGNORE]
    return tokens[: task.length], targets[: task.length]


def _expression(n: int, modulus: int, rng: random.Random) -> tuple[list[int], int]:
    if n == 0:
        value = rng.randrange(modulus)
        return [value], value
    operation, first = rng.randrange(3), rng.randrange(n)
    (one, a), (other, b) = (_expression(part, modulus, rng) for part in (first, n - 1 - first))
    return [modulus + operation, *one, *other], OPERATORS[operation](a, b) % modulus


def mano_answers(task: ManoTask, tokens: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield position, target and number of operations of each answer, from the integers without a modulus."""
    equals, start = task.modulus + 3, 0
    for t, token in enumerate(tokens):
        if token > equals:
            start = t
        elif token == equals:
            written = iter(tokens[start + 1 : t])
            value = _value(written, task.modulus)
            assert not [*written]
            assert t - start == 2 * (tokens[start] - equals) + 2
            yield t, value % task.modulus, tokens[start] - equals


def _value(tokens: Iterator[int], modulus: int) -> int:
    token = next(tokens)
    return token if token < modulus else OPERATORS[token - modulus](_value(tokens, modulus), _value(tokens, modulus))
