"""Find the lightest walks through the graph of tokens, by dynamic programming backwards from the
query, compiled.

A sequence x_0 .. x_t is a walk. Its token b at position t - back, after a token a, weighs

    mass[back, b, a] * (gain[b, a] - level),        gain = read_answer - read_rival.

If the lightest walk of a set weighs 0 or more, then in every sequence of the set the
attention-weighted mean of the gains is at least the level. Every number is a bound: a mass is an
interval, a gain is known from below, and each operation on the way to a weight is rounded down. So
"weighs 0 or more" is a proof, whatever proposed the level. Levels are proposed by Dinkelbach's
method (1967): the level becomes the mean of the lightest walk, until it no longer falls.

Shapes, with V tokens, and index V for "none before": mass [back, V, V + 1] and gain [place, V, V +
1], with one back or place for all positions, or one for each; read [output, place, V, V + 1]; value
[state, V]: the weight of all positions after a token, with the state there.
"""

from typing import NamedTuple

import numba
import numpy as np

from ihlab.certify.enclosures import Interval, above, below

compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
Array = np.ndarray

STEPS = 200
"""The most steps of Dinkelbach's method, which usually ends after about five."""


class Question(NamedTuple):
    """The arrays of `Sequences`, as compiled code takes them. The query is a number in the
    alphabet, the answer an output.
    """

    first: Array
    rule: Array
    follow: Array
    asks: Array
    query: int
    answer: int


class PairTables(NamedTuple):
    """The tables of one query, for sequences up to a length. Token V means "none before".

    - `mass` [head, back, token, before]: e^s times a common factor, `back` positions before the
      query. The axis `back` has size 1 if scores do not depend on the distance;
    - `read` [head, output, place, token, before]: the axis `place` has size 1 unless positions are
      learned. Then it counts back from the query;
    - `direct` [output].
    """

    mass: Interval
    read: Interval
    direct: Interval


@compiled
def of_head(mass: Interval, head: int) -> Interval:
    """Return the masses of a head [back, token, before]."""
    return Interval(mass.low[head], mass.high[head])


@compiled
def gains(read: Interval, head: int, answer: int, rival: int) -> Array:
    """Return a head's gain of the answer over a rival, from below."""
    gain = read.low[head, answer] - read.high[head, rival]
    for i in range(gain.size):
        gain.flat[i] = below(gain.flat[i])
    return gain


@compiled
def least_gains(tables: PairTables, answer: int, start: int, stop: int) -> Array:
    """Return the least gain of the answer over the rivals start .. stop - 1, with one head."""
    read, direct = tables.read, tables.direct
    least = np.full(read.low.shape[2:], np.inf)
    flat = least.reshape(-1)
    for rival in range(start, stop):
        if rival != answer:
            constant = below(direct.low[answer] - direct.high[rival])
            of_rival = gains(read, 0, answer, rival).reshape(-1)
            for i in range(len(flat)):
                gain = below(of_rival[i] + constant)
                flat[i] = gain if gain < flat[i] else flat[i]
    return least


@compiled
def _weight(low: float, high: float, gain: float, level: float) -> float:
    """Return the least weight of a token whose mass is between low and high."""
    over = below(gain - level)
    return below((low if over > 0 else high) * over)


@compiled
def _token_weight(
    mass: Interval, gain: Array, level: float, back: int, token: int, before: int
) -> float:
    low, high = (
        mass.low[back % len(mass.low), token, before],
        mass.high[back % len(mass.low), token, before],
    )
    return _weight(low, high, gain[back % len(gain), token, before], level)


@compiled
def _fill(weight: Array, mass: Interval, gain: Array, level: float, back: int) -> None:
    """Fill weight [V, V + 1] with those of a token `back` positions before the query."""
    low, high = mass.low[back % len(mass.low)], mass.high[back % len(mass.low)]
    here = gain[back % len(gain)]
    for token in range(weight.shape[0]):
        for before in range(weight.shape[1]):
            weight[token, before] = _weight(
                low[token, before], high[token, before], here[token, before], level
            )


@compiled
def _step(weight: Array, question: Question, value: Array, lightest: Array) -> None:
    """Move `value` one position back, past a token of weight [V, V + 1]. `lightest` [rule, V] is
    overwritten.
    """
    n_states, n_tokens = question.rule.shape
    lightest[:] = np.inf
    for number in range(len(lightest)):
        for token in range(n_tokens):
            state = question.follow[number, token]
            if state >= 0 and value[state, token] < np.inf:
                rest = value[state, token]
                for before in range(n_tokens):
                    total = weight[token, before] + rest
                    # Unlike min(), which must pass on NaN, this compiles to vector instructions.
                    lightest[number, before] = (
                        total if total < lightest[number, before] else lightest[number, before]
                    )
    for state in range(n_states):
        for before in range(n_tokens):
            # The smallest of rounded sums is the rounded smallest sum, so one step down is enough
            # for all.
            total = lightest[question.rule[state, before], before]
            value[state, before] = below(total) if total < np.inf else np.inf


@compiled
def _rest(mass: Interval, gain: Array, level: float, question: Question, longest: int) -> Array:
    """Return the lightest sum of the weights after a token `back` positions before the query [back,
    state, token].
    """
    n_states, n_tokens = question.rule.shape
    query = question.query
    rest = np.full((longest, n_states, n_tokens), np.inf)
    weight, lightest = (
        np.empty((n_tokens, n_tokens + 1)),
        np.empty((len(question.follow), n_tokens)),
    )
    same_everywhere = len(mass.low) == 1 and len(gain) == 1
    for state in range(n_states):
        for before in range(n_tokens):
            if question.asks[state] and question.follow[question.rule[state, before], query] >= 0:
                rest[1, state, before] = _token_weight(mass, gain, level, 0, query, before)
    for back in range(1, longest - 1):
        if back == 1 or not same_everywhere:
            _fill(weight, mass, gain, level, back)
        rest[back + 1] = rest[back]
        _step(weight, question, rest[back + 1], lightest)
    return rest


@compiled
def _lightest_first(
    mass: Interval, gain: Array, level: float, question: Question, rest: Array, back: int
) -> tuple[float, int]:
    """Return the weight of the lightest walk from a first token `back` positions before the query,
    and this token.
    """
    smallest, first = np.inf, 0
    for token in range(len(question.first)):
        state = question.first[token]
        if state >= 0 and rest[back, state, token] < np.inf:
            none = len(question.first)
            total = below(
                _token_weight(mass, gain, level, back, token, none) + rest[back, state, token]
            )
            if total < smallest:
                smallest, first = total, token
    return smallest, first


@compiled
def _walk(
    mass: Interval,
    gain: Array,
    level: float,
    question: Question,
    rest: Array,
    length: int,
) -> tuple[float, Array]:
    """Return the weight and the tokens of the lightest walk of a length, first to last; no tokens
    if there is none.
    """
    walk = np.full(length, question.query)
    lightest, walk[0] = _lightest_first(mass, gain, level, question, rest, length - 1)
    if lightest == np.inf:
        return lightest, walk[:0]
    state = question.first[walk[0]]
    for number in range(1, length - 1):
        back, before = length - 1 - number, walk[number - 1]
        allowed, smallest = question.follow[question.rule[state, before]], np.inf
        for token in range(len(allowed)):
            if allowed[token] >= 0 and rest[back, allowed[token], token] < np.inf:
                total = rest[back, allowed[token], token] + _token_weight(
                    mass, gain, level, back, token, before
                )
                if total < smallest:
                    smallest, walk[number] = total, token
        state = allowed[walk[number]]
    return lightest, walk


@compiled
def lightest_walk(
    mass: Interval, gain: Array, level: float, question: Question, length: int
) -> tuple[float, Array]:
    """Return the weight and the tokens of the lightest walk of a length; inf and no tokens if there
    is none.
    """
    rest = _rest(mass, gain, level, question, length)
    return _walk(mass, gain, level, question, rest, length)


@compiled
def mean_above(mass: Interval, low: Array, high: Array, walk: Array) -> float:
    """Return an upper bound of the mean of gains, which are between low and high [place, V, V + 1],
    over a walk.
    """
    weighted, least, most = 0.0, 0.0, 0.0
    for number in range(len(walk)):
        back, token = len(walk) - 1 - number, walk[number]
        before = walk[number - 1] if number else mass.low.shape[2] - 1
        gain = above(high[back % len(high), token, before] - low[back % len(low), token, before])
        small, large = (
            mass.low[back % len(mass.low), token, before],
            mass.high[back % len(mass.low), token, before],
        )
        weighted = above(weighted + above((large if gain > 0 else small) * gain))
        least, most = below(least + small), above(most + large)
    total = least if weighted > 0 else most
    return above(weighted / total) if total > 0 else np.inf


@compiled
def nearest_rival(tables: PairTables, answer: int, walk: Array) -> tuple[float, int]:
    """Return an upper bound of the margin of a walk, and the rival of this margin."""
    mass, read, direct = tables
    smallest, nearest = np.inf, 0
    for rival in range(len(direct.low)):
        if rival != answer:
            margin = above(direct.high[answer] - direct.low[rival])
            for head in range(len(mass.low)):
                low, high = read.low[head, rival], read.high[head, answer]
                margin = above(margin + mean_above(of_head(mass, head), low, high, walk))
            if margin < smallest:
                smallest, nearest = margin, rival
    return smallest, nearest


@compiled
def least_mean(
    mass: Interval, gain: Array, question: Question, length: int, start: float = 0.0
) -> tuple[float, Array]:
    """Return a lower bound of the mean of gains over all walks of a length, and a walk whose mean
    is near it.

    The bound is the first level at which the lightest walk weighs 0 or more, or the least gain.
    `start` is a first guess. Return inf and no tokens without a walk.
    """
    _, walk = lightest_walk(mass, gain, start, question, length)
    if not len(walk):
        return np.inf, walk
    zero, least, span = np.zeros_like(gain), gain.min(), gain.max() - gain.min()
    level, off = min(mean_above(mass, zero, gain, walk), gain.max()), 0.0
    for _ in range(STEPS):
        if level - off <= least:  # no mean is below the least gain
            break
        weight, near = lightest_walk(mass, gain, level - off, question, length)
        if weight >= 0:
            return level - off, walk
        mean = mean_above(mass, zero, gain, near)
        if mean < level - off:
            level, walk, off = mean, near, 0.0
        else:  # the weight is negative by rounding alone
            off = max(16 * off, 2.0**-46 * span)
    return least, walk


@compiled
def signs(
    tables: PairTables,
    question: Question,
    lengths: Array,
) -> tuple[Array, Array]:
    """Return, for each length, the sign of the smallest margin with one head, and a walk; its
    unused places are -1.

    1: the margin of every walk is above 0. -1: that of the returned walk is 0 or less. 0: neither
    is known, and the walk is a candidate. 2: there is no walk. All rivals are first tested in one
    pass, by the least gain of any rival at each pair. That is a bound for each of them. Where the
    test fails, each half of them is tested, and so on.
    """
    longest, answer, mass = lengths[-1], question.answer, of_head(tables.mass, 0)
    found = np.ones(len(lengths), np.int64)
    walks = np.full((len(lengths), longest), -1)
    starts, stops = [0], [len(tables.direct.low)]
    while starts:
        start, stop = starts.pop(), stops.pop()
        if stop - start == 1 and start == answer:
            continue
        gain = least_gains(tables, answer, start, stop)
        rest = _rest(mass, gain, 0.0, question, longest)
        halve = False
        for i in range(len(lengths)):
            if found[i] == -1 or found[i] == 2:
                continue
            weight, _ = _lightest_first(mass, gain, 0.0, question, rest, lengths[i] - 1)
            if weight == np.inf:
                found[i] = 2
            if weight > 0:
                continue
            _, walk = _walk(mass, gain, 0.0, question, rest, lengths[i])
            if nearest_rival(tables, answer, walk)[0] <= 0:
                found[i], walks[i, : len(walk)] = -1, walk
            elif stop - start > 1:
                halve = True
            else:
                found[i], walks[i, : len(walk)] = 0, walk
        if halve:
            middle = (start + stop) // 2
            starts += [start, middle]
            stops += [middle, stop]
    return found, walks


@compiled
def smallest_margin(
    tables: PairTables,
    question: Question,
    length: int,
) -> tuple[float, float, Array]:
    """Return a lower bound of the margins of all walks of a length, an upper bound of the smallest
    margin that was found, and the walk that has it.

    With one head. Return inf without a walk. The first walk's nearest rival is tested alone, then
    the others in groups. A group passes if no walk is below the smallest known margin. A group that
    fails is split in halves.
    """
    answer, mass, n_outputs = question.answer, of_head(tables.mass, 0), len(tables.direct.low)
    gain = least_gains(tables, answer, 0, n_outputs)
    _, walk = lightest_walk(mass, gain, 0.0, question, length)
    if not len(walk):
        return np.inf, np.inf, walk
    margin, nearest = nearest_rival(tables, answer, walk)
    bound = np.inf
    starts, stops = [0, nearest + 1, nearest], [nearest, n_outputs, nearest + 1]
    while starts:
        start, stop = starts.pop(), stops.pop()
        if start == stop or (stop - start == 1 and start == answer):
            continue
        gain = least_gains(tables, answer, start, stop)
        level = min(margin, gain.max())
        weight, near = lightest_walk(mass, gain, level, question, length)
        if weight >= 0:
            continue
        if stop - start == 1:
            lowest, near = least_mean(mass, gain, question, length, level)
            bound = min(bound, lowest)
        known = nearest_rival(tables, answer, near)[0]
        if known < margin:
            margin, walk = known, near
        if stop - start == 1:
            continue
        middle = (start + stop) // 2
        starts += [start, middle]
        stops += [middle, stop]
    return min(bound, margin), margin, walk


@compiled
def sums_of_heads(tables: PairTables, question: Question, length: int) -> tuple[Array, Array]:
    """Return a lower bound of the margins of all walks of a length against each rival, the sum over
    heads of `least_mean`, and each head's worst walk for the smallest one. Return inf without a walk.
    """
    mass, read, direct = tables
    answer, n_heads, smallest = question.answer, len(mass.low), np.inf
    bounds = np.full(len(direct.low), np.inf)
    walks, trial = np.zeros((n_heads, length), np.int64), np.zeros((n_heads, length), np.int64)
    for rival in range(len(direct.low)):
        if rival == answer:
            continue
        total = below(direct.low[answer] - direct.high[rival])
        for head in range(n_heads):
            gain = gains(read, head, answer, rival)
            level, walk = least_mean(of_head(mass, head), gain, question, length)
            if not len(walk):
                return bounds, walks
            total = below(total + level)
            trial[head] = walk
        bounds[rival] = total
        if total < smallest:
            smallest = total
            walks[:] = trial
    return bounds, walks


@compiled
def values(tables: PairTables, question: Question, length: int, walk: Array) -> tuple[Array, Array]:
    """Return bounds, from below and from above, of each output: direct plus the sum of the heads'
    means. They hold over all walks of a length, or on one walk if it has tokens.
    """
    mass, read, direct = tables
    low, high = direct.low.copy(), direct.high.copy()
    for output in range(len(low)):
        for head in range(len(mass.low)):
            masses, smallest, largest = (
                of_head(mass, head),
                read.low[head, output],
                read.high[head, output],
            )
            if len(walk):
                zero = np.zeros_like(smallest)
                least = -mean_above(masses, smallest, zero, walk)
                most = mean_above(masses, zero, largest, walk)
            else:
                least, _ = least_mean(masses, smallest, question, length)
                most = -least_mean(masses, -largest, question, length)[0]
            low[output], high[output] = below(low[output] + least), above(high[output] + most)
    return low, high
