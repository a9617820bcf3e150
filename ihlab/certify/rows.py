"""Bounds of one attention row's output over all choices of its free tokens, compiled (see `ihlab.certify.bounds`)."""

import numpy as np

from ihlab.certify.walks import Array, compiled

ROUNDS = 4
"""Steps of Dinkelbach's method. The bound is sound after any number of them."""

LOWEST = -1e300
"""Replaces any smaller number. It is finite, so that no sum is NaN; only the sign of a walk's weight is used."""


@compiled
def smallest_of_row(mass: Array, gain: Array, fixed: Array, used: Array, last: int, sign: float) -> float:
    """Return a lower bound of the mean of sign * gain, weighted by mass [pos, token], up to position `last`.

    A position with `fixed` [pos] = -1 can hold any token that is not `used` [token]. If f is the smallest sum of
    mass * (gain - level), then no mean is below level + f / (smallest sum of masses), or below the level if f >= 0.
    """
    level = 0.0
    for number in range(ROUNDS):
        total, masses, gains, fewest = 0.0, 0.0, 0.0, 0.0
        for pos in range(last + 1):
            smallest, of_mass, of_gain, least = np.inf, 0.0, 0.0, np.inf
            begin, end = (fixed[pos], fixed[pos] + 1) if fixed[pos] >= 0 else (0, mass.shape[1])
            for token in range(begin, end):
                if fixed[pos] < 0 and used[token]:
                    continue
                weight = mass[pos, token] * (sign * gain[pos, token] - level)
                least = min(least, mass[pos, token])
                if weight < smallest:
                    smallest, of_mass, of_gain = weight, mass[pos, token], sign * gain[pos, token]
            total, masses, gains, fewest = total + smallest, masses + of_mass, gains + of_mass * of_gain, fewest + least
        if number == ROUNDS - 1 or masses == 0:
            break
        level = gains / masses
    if total >= 0:
        return level if masses > 0 else LOWEST
    return level + total / fewest if fewest > 0 else LOWEST


@compiled
def _largest_gap(
    mass: Array, direct: Array, written: Array, fixed: Array, used: Array, key: int, token: int, right: int
) -> float:
    """Return an upper bound of the score of a key minus that of the right key, over all free tokens."""
    final = len(fixed) - 1
    answer, gaps = fixed[right], np.zeros(direct.shape[:2])
    for pos in range(len(fixed)):
        for term in range(len(used)):
            if fixed[pos] != term and (fixed[pos] >= 0 or used[term]):
                continue
            # In the first layer, the rows of both keys contain this position, with the same token.
            held = fixed[pos] < 0
            fixed[pos], used[term] = term, True
            high = -smallest_of_row(mass[key, token], written[pos, term], fixed, used, key, -1.0)
            low = smallest_of_row(mass[right, answer], written[pos, term], fixed, used, right, 1.0)
            gaps[pos, term] = high - low + direct[pos, term, key, token] - direct[pos, term, right, answer]
            if held:
                fixed[pos], used[term] = -1, False
    return -smallest_of_row(mass[final, fixed[final]], gaps, fixed, used, final, -1.0)


@compiled
def pair_weights(
    mass: Array,
    direct: Array,
    written: Array,
    base: Array,
    streams: Array,
    writes: Array,
    query: int,
    answer: int,
    place: int,
) -> Array:
    """Return the weight of each pair [rival, back, token, before] at each position; inf where it may not stand."""
    n_rivals, length, n_tokens = streams.shape
    right, final = place + 1, length - 1
    weights = np.full((n_rivals, length, n_tokens, n_tokens + 1), np.inf)
    question = np.full(length, -1)
    question[place], question[right], question[final] = query, answer, query
    for key in range(length):
        for before in range(n_tokens) if key else range(n_tokens, n_tokens + 1):
            for token in range(n_tokens):
                fixed, used = question.copy(), np.zeros(n_tokens, np.bool_)
                used[query], used[answer] = True, True
                allowed = True
                for pos, its in ((key, token), (key - 1, before)):
                    if pos >= 0 and question[pos] < 0:
                        allowed = allowed and not used[its]
                        fixed[pos], used[its] = its, True
                    elif pos >= 0:
                        allowed = allowed and question[pos] == its
                if not allowed:
                    continue
                gap = 0.0
                if key != right:
                    gap = _largest_gap(mass, direct, written, fixed, used, key, token, right)
                for rival in range(n_rivals):
                    weight = streams[rival, key, token]
                    weight += smallest_of_row(mass[key, token], writes[rival], fixed, used, key, 1.0)
                    weight += smallest_of_row(mass[final, query], base[rival], fixed, used, final, 1.0)
                    if key != right:
                        weight = 0.0 if weight >= 0 else weight * np.exp(gap) if gap < 300 else LOWEST
                    weights[rival, final - key, token, before] = max(weight, LOWEST)
    return weights
