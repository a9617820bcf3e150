"""Find the lightest walks through the graph of tokens, by dynamic programming backwards from the query, compiled.

A sequence x_0 .. x_t is a walk. Its token b at position t - back, after a token a, has a weight [back, b, a], and a
walk weighs the sum over its tokens. Every weight is a lower bound, and each addition is rounded down. So if the
lightest of all walks weighs more than 0, that is a proof (`ihlab.certify.bounds` says of what).

Shapes, with V tokens, and index V for "none before": mass [head, back, V, V + 1] and weight [back, V, V + 1], with one
back for all positions, or one for each; read [head, output, place, V, V + 1]; value [state, V]: the weight of all
positions after a token, with the state there.
"""

from math import fsum
from typing import NamedTuple

import numba
import numpy as np

from ihlab.certify.enclosures import Interval, above, below
from ihlab.certify.sequences import Sequences
from ihlab.certify.tables import PairTables

compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
Array = np.ndarray


class Automaton(NamedTuple):
    """The arrays of `Sequences`, as compiled code takes them. `query` is a number in the alphabet."""

    first: Array
    rule: Array
    follow: Array
    asks: Array
    query: int


def automaton_of(question: Sequences) -> Automaton:
    """Return the arrays of a question."""
    query = int(np.searchsorted(question.alphabet, question.query))
    return Automaton(question.first, question.rule, question.follow, question.asks, query)


class Multipliers(NamedTuple):
    """The numbers of each head in the weights of several heads (`ihlab.certify.bounds`)."""

    ratio: Array
    split: Array
    end: Array


@compiled
def gains(
    read: Interval, direct: Interval, answer: int, start: int, stop: int, level: float, multipliers: Multipliers
) -> Array:
    """Return what a mass of each head is multiplied with, from below [rival, head, place, V, V + 1].

    The rivals are start .. stop - 1 without the answer. With one head, return the least gain over them [1, 1, ..].
    """
    n_heads, _, n_places, n_tokens, n_before = read.low.shape
    n_rivals = 1 if n_heads == 1 else stop - start
    found = np.full((n_rivals, n_heads, n_places, n_tokens, n_before), np.inf)
    for rival in range(start, stop):
        if rival == answer:
            continue
        for head in range(n_heads):
            kept = found[min(rival - start, n_rivals - 1), head].reshape(-1)
            own = np.ascontiguousarray(read.low[head, answer]).reshape(-1)
            other = np.ascontiguousarray(read.high[head, rival]).reshape(-1)
            constant = below(multipliers.split[head] * multipliers.end[head])
            if head == 0:
                constant = below(below(below(direct.low[answer] - direct.high[rival]) - level) + constant)
            for i in range(len(kept)):
                gain = below(below(multipliers.ratio[head] * below(own[i] - other[i])) + constant)
                kept[i] = gain if gain < kept[i] else kept[i]
    return found


@compiled
def weigh(mass: Interval, gain: Array) -> Array:
    """Return the weight of each token [back, V, V + 1]: the least over rivals of the sum of mass times gain."""
    n_rivals, n_heads, n_places, n_tokens, n_before = gain.shape
    n_masses = mass.low.shape[1]
    weight = np.empty((max(n_masses, n_places), n_tokens, n_before))
    for back in range(len(weight)):
        for token in range(n_tokens):
            for before in range(n_before):
                least = np.inf
                for rival in range(n_rivals):
                    total = 0.0
                    for head in range(n_heads):
                        each = gain[rival, head, back % n_places, token, before]
                        masses = mass.low if each > 0 else mass.high
                        product = below(masses[head, back % n_masses, token, before] * each)
                        total = product if head == 0 else below(total + product)
                    least = total if total < least else least
                weight[back, token, before] = least
    return weight


@compiled
def _step(weight: Array, automaton: Automaton, value: Array, lightest: Array) -> None:
    """Move `value` one position back, past a token of weight [V, V + 1]. `lightest` [rule, V] is overwritten."""
    n_states, n_tokens = automaton.rule.shape
    lightest[:] = np.inf
    for number in range(len(lightest)):
        for token in range(n_tokens):
            state = automaton.follow[number, token]
            if state >= 0 and value[state, token] < np.inf:
                rest = value[state, token]
                for before in range(n_tokens):
                    total = weight[token, before] + rest
                    # Unlike min(), which must pass on NaN, this compiles to vector instructions.
                    lightest[number, before] = total if total < lightest[number, before] else lightest[number, before]
    for state in range(n_states):
        for before in range(n_tokens):
            # The smallest of rounded sums is the rounded smallest sum, so one step down is enough for all.
            total = lightest[automaton.rule[state, before], before]
            value[state, before] = below(total) if total < np.inf else np.inf


@compiled
def _rest(weight: Array, automaton: Automaton, longest: int) -> Array:
    """Return the lightest sum of the weights after a token `back` positions before the query [back, state, token]."""
    n_states, n_tokens = automaton.rule.shape
    rest = np.full((longest, n_states, n_tokens), np.inf)
    lightest = np.empty((len(automaton.follow), n_tokens))
    for state in range(n_states):
        for before in range(n_tokens):
            if automaton.asks[state] and automaton.follow[automaton.rule[state, before], automaton.query] >= 0:
                rest[1, state, before] = weight[0, automaton.query, before]
    for back in range(1, longest - 1):
        rest[back + 1] = rest[back]
        _step(weight[back % len(weight)], automaton, rest[back + 1], lightest)
    return rest


@compiled
def lightest_walks(weight: Array, automaton: Automaton, lengths: Array) -> tuple[Array, Array]:
    """Return the weight of the lightest walk of each length, inf without a walk, and the walks [length, pos].

    Unused places of a walk hold the query.
    """
    n_tokens, longest = len(automaton.first), lengths.max()
    totals, walks = np.full(len(lengths), np.inf), np.full((len(lengths), longest), automaton.query)
    rest = _rest(weight, automaton, longest)
    for i in range(len(lengths)):
        back, walk = lengths[i] - 1, walks[i]
        for token in range(n_tokens):
            state = automaton.first[token]
            if state >= 0 and rest[back, state, token] < np.inf:
                total = below(weight[back % len(weight), token, n_tokens] + rest[back, state, token])
                if total < totals[i]:
                    totals[i], walk[0] = total, token
        if totals[i] == np.inf:
            continue
        state = automaton.first[walk[0]]
        for number in range(1, lengths[i] - 1):
            back, before = back - 1, walk[number - 1]
            allowed, smallest = automaton.follow[automaton.rule[state, before]], np.inf
            for token in range(n_tokens):
                if allowed[token] >= 0 and rest[back, allowed[token], token] < np.inf:
                    total = rest[back, allowed[token], token] + weight[back % len(weight), token, before]
                    if total < smallest:
                        smallest, walk[number] = total, token
            state = allowed[walk[number]]
    return totals, walks


def on_walk(table: Array, walk: Array) -> Array:
    """Return the entries [.., pos] of a table [.., back, V, V + 1] for the tokens of a walk."""
    backs = np.arange(len(walk))[::-1] % table.shape[-3]
    before = np.concatenate([[table.shape[-1] - 1], walk[:-1]])
    return table[..., backs, walk, before]


def mean_above(low: Array, high: Array, gain: Array) -> Array:
    """Return upper bounds of means of gains, from above [.., pos], with weights between `low` and `high` [pos].

    `fsum` is rounded only once.
    """
    products = above.py_func(np.where(gain > 0, high, low) * gain)
    weighted = above.py_func(np.array([fsum(each) for each in products]))
    total = np.where(weighted > 0, below.py_func(fsum(low)), above.py_func(fsum(high)))
    bounded = total > 0
    return np.where(bounded, above.py_func(weighted / np.where(bounded, total, 1.0)), np.inf)


def margin_above(tables: PairTables, answer: int, walk: Array) -> float:
    """Return an upper bound of the margin of a walk."""
    masses = [on_walk(table, walk) for table in tables.mass]
    low, high = (on_walk(table, walk) for table in tables.read)
    margins = above.py_func(tables.direct.high[answer] - tables.direct.low)
    for of_low, of_high, least, most in zip(*masses, low, high, strict=True):
        means = mean_above(of_low, of_high, above.py_func(most[answer] - least))
        margins = above.py_func(margins + means)
    margins[answer] = np.inf
    return float(margins.min())
