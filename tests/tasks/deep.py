"""Depo again, in plain Python: how a sequence is drawn, and what its answers are."""

import random
from collections.abc import Iterator

from tasks import IGNORE, DepoTask


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
