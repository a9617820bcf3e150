"""Bound the margin with several heads by branching over the ratios of their softmax sums, compiled.

With Z_h the sum of head h's masses over a walk, N_h that of its mass times its gain, and
c_h = Z_0 / Z_h, a margin is d + sum over heads of N_h / Z_h, and for any levels l_h

    Z_0 (margin - d - sum of l_h) = sum over heads of c_h (N_h - l_h Z_h).

The right side is linear in each c_h. So over a box low_h <= c_h <= high_h it is least at a corner.
At a corner it is the weight of a walk, which a shortest path makes least. Walks whose ratios lie
outside the box do not matter: for any k_h > 0, k_h (Z_0 - low_h Z_h) is not negative in the box,
and may be subtracted from the weight; for k_h < 0, k_h (Z_0 - high_h Z_h). If the lightest walk
then weighs 0 or more at each corner, every margin in the box is at least d + sum of l_h. A box that
fails is split in two. Every operation is rounded down. Corners, levels and the k_h may be any
numbers, so whatever proposes them proves nothing wrong.
"""

import numpy as np

from ihlab.certify.enclosures import Interval, above, below
from ihlab.certify.walks import (
    Array,
    PairTables,
    Question,
    compiled,
    gains,
    lightest_walk,
    mean_above,
    of_head,
)

LARGEST = 1e300
"""The largest weight of a token that is believed."""
STEPS = 12
"""The most multipliers that are tried at a corner."""
WORK = 2e8
"""About the operations for a question, a length and a rival, some tenths of a second: after them the
answer is unknown."""
NARROW = 1.001
"""The ratio of a box's ends below which it is given up. Two walks on either side of a box can have
a mean that is lighter than every walk in it, and then no narrower box helps."""
LEVELS = 12
"""The most levels that are tried. A level that fails is followed by one four times smaller."""


@compiled
def ratio_range(mass: Interval, head: int) -> tuple[float, float]:
    """Return bounds of Z_0 / Z_head over all walks: a ratio of sums is between those of the parts."""
    low, high = np.inf, 0.0
    for back in range(mass.low.shape[1]):
        for token in range(mass.low.shape[2]):
            for before in range(mass.low.shape[3]):
                least, most = mass.low[0, back, token, before], mass.high[0, back, token, before]
                under = mass.low[head, back, token, before]
                over = mass.high[head, back, token, before]
                if most == 0 and over == 0:
                    continue
                low = min(low, max(below(least / over), 0.0) if over > 0 else np.inf)
                high = max(high, above(most / under) if under > 0 else np.inf)
    return low, high


@compiled
def weights(
    mass: Interval, gain: Array, levels: Array, corner: Array, multiplier: Array, edge: Array
) -> Array:
    """Return the least weight of each token at a corner [place, V, V + 1].

    gain [head, place, V, V + 1]; the others [head], where head 0 has the corner 1 and no multiplier.
    """
    n_heads, n_backs, n_tokens, n_before = mass.low.shape
    n_places = max(n_backs, gain.shape[1])
    total = np.zeros((n_places, n_tokens, n_before))
    for place in range(n_places):
        back, gain_place = place % n_backs, place % gain.shape[1]
        for token in range(n_tokens):
            for before in range(n_before):
                weight = 0.0
                for head in range(n_heads):
                    factor = below(gain[head, gain_place, token, before] - levels[head])
                    factor = below(corner[head] * factor)
                    if head == 0:
                        for other in range(1, n_heads):
                            factor = below(factor - multiplier[other])
                    else:
                        factor = below(factor + below(multiplier[head] * edge[head]))
                    low = mass.low[head, back, token, before]
                    high = mass.high[head, back, token, before]
                    weight = below(weight + below((low if factor > 0 else high) * factor))
                # A number that overflows proves nothing, and a sum of the others must not overflow.
                total[place, token, before] = (
                    min(weight, LARGEST) if np.isfinite(weight) else -np.inf
                )
    return total


@compiled
def sums(mass: Interval, walk: Array) -> Array:
    """Return about the sum of each head's masses on a walk [head]."""
    total = np.zeros(len(mass.low))
    for number in range(len(walk)):
        back, token = (len(walk) - 1 - number) % mass.low.shape[1], walk[number]
        before = walk[number - 1] if number else mass.low.shape[3] - 1
        for head in range(len(total)):
            total[head] += mass.high[head, back, token, before]
    return total


@compiled
def means(mass: Interval, gain: Array, walk: Array) -> Array:
    """Return upper bounds of the mean gain of each head on a walk [head]."""
    averages = np.empty(len(gain))
    for head in range(len(gain)):
        nothing = np.zeros_like(gain[head])
        averages[head] = mean_above(of_head(mass, head), nothing, gain[head], walk)
    return averages


@compiled
def corner_holds(
    mass: Interval,
    gain: Array,
    levels: Array,
    corner: Array,
    low: Array,
    high: Array,
    question: Question,
    length: int,
    paths: Array,
) -> tuple[bool, Array]:
    """Return whether every walk in the box weighs 0 or more at a corner, and else the walk with the
    least sum of means that was met.

    Multipliers are proposed by Polyak's step towards the weight 0.
    """
    n_heads = len(levels)
    multiplier, edge, slope = np.zeros(n_heads), low.copy(), np.zeros(n_heads)
    one = Interval(np.ones((1, *gain.shape[2:])), np.ones((1, *gain.shape[2:])))
    worst, least = np.zeros(0, np.int64), np.inf
    for _ in range(STEPS):
        paths[0] -= 1
        weight, walk = lightest_walk(
            one,
            weights(mass, gain, levels, corner, multiplier, edge),
            0.0,
            question,
            length,
        )
        if weight >= 0:
            return True, worst
        value = means(mass, gain, walk).sum()
        if value < least:
            worst, least = walk, value
        total, largest = sums(mass, walk), 0.0
        for head in range(1, n_heads):
            ratio = total[0] / total[head]
            if multiplier[head] > 0 or (multiplier[head] == 0 and ratio < low[head]):
                edge[head] = low[head]
            elif multiplier[head] < 0 or ratio > high[head]:
                edge[head] = high[head]
            else:
                slope[head] = 0.0
                continue
            slope[head] = edge[head] * total[head] - total[0]
            largest = max(largest, abs(slope[head]))
        if not (largest > 0 and np.isfinite(largest)):
            break
        slope /= largest  # whose square would overflow
        size = (slope**2).sum()
        for head in range(1, n_heads):
            new = multiplier[head] - weight / largest / size * slope[head]
            if new * multiplier[head] < 0:
                new = 0.0
            multiplier[head] = new
            edge[head] = low[head] if new >= 0 else high[head]
    return False, worst


@compiled
def level_holds(
    mass: Interval,
    gain: Array,
    levels: Array,
    lows: Array,
    highs: Array,
    question: Question,
    length: int,
    paths: Array,
) -> tuple[bool, Array]:
    """Return whether the heads' means add up to the levels' sum or more on every walk, and the
    lightest walk of the box that was given up.
    """
    n_heads = len(levels)
    stack = [(lows, highs)]
    walk = np.zeros(0, np.int64)
    while stack:
        low, high = stack.pop()
        holds = True
        for number in range(2 ** (n_heads - 1)):
            corner = np.ones(n_heads)
            for head in range(1, n_heads):
                corner[head] = high[head] if number >> (head - 1) & 1 else low[head]
            holds, walk = corner_holds(
                mass, gain, levels, corner, low, high, question, length, paths
            )
            if not holds or paths[0] < 0:
                holds = False
                break
        if holds:
            continue
        if means(mass, gain, walk).sum() < levels.sum() or paths[0] < 0:
            return False, walk
        widest = 1
        for head in range(2, n_heads):
            if high[head] / low[head] > high[widest] / low[widest]:
                widest = head
        middle = np.sqrt(low[widest]) * np.sqrt(high[widest])
        if high[widest] < NARROW * low[widest]:
            return False, walk
        left, right = high.copy(), low.copy()
        left[widest] = right[widest] = middle
        stack.append((low, left))
        stack.append((right, high))
    return True, walk


@compiled
def branched(
    tables: PairTables, question: Question, rival: int, walk: Array
) -> tuple[float, Array]:
    """Return a lower bound of the margin against a rival, minus infinity if none is found, and the
    walk with the least known margin. `walk` is a first one, whose margin is above 0.
    """
    mass, read, direct, answer = tables.mass, tables.read, tables.direct, question.answer
    n_heads = len(mass.low)
    lows, highs, gain = np.ones(n_heads), np.ones(n_heads), read.low[:, answer].copy()
    gain[0] = gains(read, 0, answer, rival)
    for head in range(1, n_heads):
        lows[head], highs[head] = ratio_range(mass, head)
        if not (lows[head] > 0 and highs[head] < np.inf):
            return -np.inf, walk
        gain[head] = gains(read, head, answer, rival)
    constant = below(direct.low[answer] - direct.high[rival])
    places, n_tokens = max(mass.low.shape[1], gain.shape[1]), mass.low.shape[2]
    path = n_tokens**2 * (4 * n_heads * places + 2 * len(walk) * len(question.asks))
    share, paths = 0.5, np.array([int(WORK / path)])
    for _ in range(LEVELS):
        levels = means(mass, gain, walk)
        margin = constant + levels.sum()
        if not margin > 0:
            break
        levels -= (1 - share) * margin / n_heads
        bound = constant
        for head in range(n_heads):
            bound = below(bound + levels[head])
        holds, near = level_holds(mass, gain, levels, lows, highs, question, len(walk), paths)
        if holds:
            return bound, walk
        if means(mass, gain, near).sum() < levels.sum():
            walk = near
        elif paths[0] < 0:
            break
        else:
            share /= 4
    return -np.inf, walk
