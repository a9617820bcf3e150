"""Find the lightest walks through the graph of tokens, by dynamic programming backwards from the query, compiled.

A sequence x_0 .. x_t is a walk. Its token b at position t - back, after a token a, weighs

    mass[back, b, a] * (gain[b, a] - level),        gain = read_answer - read_rival.

If the lightest walk of a set weighs more than 0, then in every sequence of the set the head's mean of gains, weighted
by the masses, is above the level. The smallest mean is found by Dinkelbach's method (1967): set the level to the mean
of the lightest walk, until it no longer falls.

Shapes, with V tokens, and index V for "none before": mass [back, V, V + 1]; gain [place, V, V + 1] and read
[output, place, V, V + 1], with one place for all positions, or one for each; value [state, V]: the weight of all
positions after a token, with the state there.
"""

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
Array = np.ndarray


class Automaton(NamedTuple):
    """The arrays of `Sequences`, as compiled code takes them."""

    first: Array
    rule: Array
    follow: Array
    asks: Array


@compiled
def _step(mass: Array, gain: Array, level: float, automaton: Automaton, value: Array) -> None:
    """Move `value` one position back, past a token of weight mass [V, V + 1] * (gain - level)."""
    n_states, n_tokens = automaton.rule.shape
    n_rules = len(automaton.follow)
    lightest = np.full((n_rules, n_tokens), np.inf)
    weight = np.empty(n_tokens)
    for token in range(n_tokens):
        for before in range(n_tokens):
            weight[before] = mass[token, before] * (gain[token, before] - level)
        for number in range(n_rules):
            state = automaton.follow[number, token]
            if state >= 0 and value[state, token] < np.inf:
                rest = value[state, token]
                for before in range(n_tokens):
                    total = weight[before] + rest
                    # Unlike min(), which must pass on NaN, this compiles to vector instructions.
                    lightest[number, before] = total if total < lightest[number, before] else lightest[number, before]
    for state in range(n_states):
        for before in range(n_tokens):
            value[state, before] = lightest[automaton.rule[state, before], before]


@compiled
def _rest(mass: Array, gain: Array, level: float, automaton: Automaton, query: int, longest: int) -> Array:
    """Return the lightest sum of the weights after a token `back` positions before the query [back, state, token]."""
    n_states, n_tokens = automaton.rule.shape
    rest = np.full((longest, n_states, n_tokens), np.inf)
    for state in range(n_states):
        for before in range(n_tokens):
            if automaton.asks[state] and automaton.follow[automaton.rule[state, before], query] >= 0:
                rest[1, state, before] = mass[0, query, before] * (gain[0, query, before] - level)
    for back in range(1, longest - 1):
        rest[back + 1] = rest[back]
        _step(mass[back], gain[back % len(gain)], level, automaton, rest[back + 1])
    return rest


@compiled
def _lightest_first(
    mass: Array, gain: Array, level: float, automaton: Automaton, rest: Array, back: int
) -> tuple[float, int]:
    """Return the weight of the lightest walk from a first token `back` positions before the query, and this token."""
    smallest, first, none = np.inf, 0, mass.shape[2] - 1
    for token in range(len(automaton.first)):
        if automaton.first[token] >= 0:
            weight = mass[back, token, none] * (gain[back % len(gain), token, none] - level)
            weight += rest[back, automaton.first[token], token]
            if weight < smallest:
                smallest, first = weight, token
    return smallest, first


@compiled
def lightest(mass: Array, gain: Array, level: float, automaton: Automaton, query: int, longest: int) -> Array:
    """Return the weight of the lightest walk of each length up to `longest`, inf where there is none."""
    rest, weights = _rest(mass, gain, level, automaton, query, longest), np.full(longest + 1, np.inf)
    for back in range(1, longest):
        weights[back + 1] = _lightest_first(mass, gain, level, automaton, rest, back)[0]
    return weights


@compiled
def lightest_walk(mass: Array, gain: Array, level: float, automaton: Automaton, query: int, length: int) -> Array:
    """Return the tokens of the lightest walk of a length, first to last; empty if there is none."""
    rest, walk = _rest(mass, gain, level, automaton, query, length), np.full(length, query)
    smallest, walk[0] = _lightest_first(mass, gain, level, automaton, rest, length - 1)
    if smallest == np.inf:
        return walk[:0]
    state = automaton.first[walk[0]]
    for number in range(1, length - 1):
        back, before = length - 1 - number, walk[number - 1]
        allowed, smallest, place = automaton.follow[automaton.rule[state, before]], np.inf, back % len(gain)
        for token in range(len(allowed)):
            if allowed[token] >= 0:
                weight = mass[back, token, before] * (gain[place, token, before] - level)
                if rest[back, allowed[token], token] + weight < smallest:
                    smallest, walk[number] = rest[back, allowed[token], token] + weight, token
        state = allowed[walk[number]]
    return walk


@compiled
def mean_of(mass: Array, gain: Array, walk: Array) -> float:
    """Return the mean gain of a walk, weighted by its masses."""
    total, weighted = 0.0, 0.0
    for number in range(len(walk)):
        back = len(walk) - 1 - number
        before = walk[number - 1] if number else mass.shape[2] - 1
        total += mass[back, walk[number], before]
        weighted += mass[back, walk[number], before] * gain[back % len(gain), walk[number], before]
    return weighted / total


@compiled
def smallest_mean(mass: Array, gain: Array, automaton: Automaton, query: int, length: int) -> tuple[float, Array]:
    """Return the smallest mean of gains over all walks of a length, and its walk (empty if there is none)."""
    level = 0.0
    walk = lightest_walk(mass, gain, level, automaton, query, length)
    if not len(walk):
        return np.inf, walk
    level = mean_of(mass, gain, walk)
    while True:
        nearer = lightest_walk(mass, gain, level, automaton, query, length)
        mean = mean_of(mass, gain, nearer)
        if mean >= level:
            return level, walk
        level, walk = mean, nearer


@compiled
def _margin_against(
    mass: Array, read: Array, direct: Array, answer: int, other: int, automaton: Automaton, query: int, walks: Array
) -> float:
    """Return the sum of the heads' smallest means against one rival, inf without a walk; put their walks in `walks`."""
    margin = direct[answer] - direct[other]
    for head in range(len(mass)):
        gain = read[head, answer] - read[head, other]
        mean, walk = smallest_mean(mass[head], gain, automaton, query, walks.shape[1])
        if not len(walk):
            return np.inf
        walks[head] = walk
        margin += mean
    return margin


@compiled
def smallest_margins(
    mass: Array,
    read: Array,
    direct: Array,
    answer: int,
    automaton: Automaton,
    query: int,
    length: int,
    every: bool = True,
    rival: int = 0,
) -> tuple[Array, Array]:
    """Return a lower bound of the margin against every rival over all walks of a length, and each head's worst walk.

    A bound is the sum of each head's smallest mean (exact for one head), inf where there is no walk. With one head, and
    unless `every`, rivals whose bound is above the smallest one so far get inf. `rival` is tried first.
    mass [head, back, V, V + 1], read [head, output, place, V, V + 1], direct [output] of the query.
    """
    n_heads, n_outputs = read.shape[:2]
    margins, smallest = np.full(n_outputs, np.inf), np.inf
    walks, trial = np.zeros((n_heads, length), np.int64), np.zeros((n_heads, length), np.int64)
    for number in range(n_outputs):
        other = (rival + number) % n_outputs
        if other == answer:
            continue
        if n_heads == 1 and not every and smallest < np.inf:  # is the rival's bound at least the smallest so far?
            gain, level = read[0, answer] - read[0, other], smallest - (direct[answer] - direct[other])
            if lightest(mass[0], gain, level, automaton, query, length)[length] >= 0:
                continue
        margins[other] = _margin_against(mass, read, direct, answer, other, automaton, query, trial)
        if margins[other] == np.inf:
            break
        if margins[other] < smallest:
            smallest = margins[other]
            walks[:] = trial
    return margins, walks


@compiled
def extremes(
    mass: Array, read: Array, direct: Array, automaton: Automaton, query: int, length: int
) -> tuple[Array, Array]:
    """Return bounds, from below and from above, of direct plus the sum of the heads' means, for each output."""
    low, high = direct.copy(), direct.copy()
    for output in range(read.shape[1]):
        for head in range(read.shape[0]):
            low[output] += smallest_mean(mass[head], read[head, output], automaton, query, length)[0]
            high[output] -= smallest_mean(mass[head], -read[head, output], automaton, query, length)[0]
    return low, high


@compiled
def lightest_of_rivals(
    mass: Array, read: Array, direct: Array, answer: int, automaton: Automaton, query: int, longest: int, level: float
) -> Array:
    """Return the lightest weight of a walk of each length, over all rivals, with the gains taken relative to `level`.

    It is above 0 if the margin of the one head is above `level` in every walk, and inf where there is no walk.
    """
    weights = np.full(longest + 1, np.inf)
    for other in range(read.shape[1]):
        if other != answer:
            bound = level - (direct[answer] - direct[other])
            gain = read[0, answer] - read[0, other]
            weights = np.minimum(weights, lightest(mass[0], gain, bound, automaton, query, longest))
    return weights


def margins_of(mass: Array, read: Array, direct: Array, answer: int, walks: Array) -> Array:
    """Return the margin of each of `walks` [walk, length], before the final norm's scale."""
    back = np.arange(walks.shape[1])[::-1]
    before = np.column_stack([np.full(len(walks), mass.shape[3] - 1), walks[:, :-1]])
    weight = mass[:, back, walks, before]  # [head, walk, position]
    weight = weight / weight.sum(axis=2, keepdims=True)
    reads = read[:, :, back % read.shape[2], walks, before]  # [head, output, walk, position]
    margins = direct[answer] - direct + np.einsum("hwp,howp->wo", weight, reads[:, [answer]] - reads)
    return np.delete(margins, answer, axis=1).min(axis=1)


def descend(
    mass: Array, read: Array, direct: Array, answer: int, walk: Array, holds: Callable[[Array], bool]
) -> tuple[Array, float]:
    """Exchange one token of a walk at a time as long as the margin falls. Return the last walk and its margin.

    `holds` returns whether a walk is in the set.
    """
    margin, before = margins_of(mass, read, direct, answer, walk[None])[0], np.inf
    while margin < before:
        before = margin
        for number in range(len(walk) - 1):
            near = np.tile(walk, (read.shape[3], 1))
            near[:, number] = np.arange(len(near))
            near = near[[holds(each) for each in near]]
            margins = margins_of(mass, read, direct, answer, near)
            if margins.min() < margin:
                walk, margin = near[margins.argmin()], margins.min()
    return walk, margin
