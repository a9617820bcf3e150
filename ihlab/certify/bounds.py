"""Prove that no margin of a set is below a level, with any number of heads: branch and bound over shortest paths.

With d the difference of the answer's and a rival's direct logits, N_h the sum over a head's positions of mass times
gain, and Z_h that of the masses, the margin is d + sum over heads of N_h / Z_h. With the ratios r_h = Z_0 / Z_h,

    Z_0 * (margin - level) = (d - level) Z_0 + sum over heads of r_h N_h.

With one head, this is the weight of a walk. With several, it is one for fixed ratios, and linear in the ratios: in a
box of ratios it is smallest in a corner. So the box is proved if the lightest walk weighs more than 0 in every corner.
Only walks whose ratios are in the box count. So the weight may be lowered by split * (Z_0 - end * Z_h), where `end` is
the lower end of the box if split > 0, else the upper one: on these walks that is not negative. Any split is sound. A
good one is found by Polyak's subgradient steps. If a corner fails, the box is cut in two, up to a budget.

All rivals are tested together first, by the least weight of any at each token. Where that fails, each half of them is.
"""

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from itertools import product
from math import fsum
from typing import NamedTuple

import numpy as np

from ihlab.certify import walks
from ihlab.certify.enclosures import above, below
from ihlab.certify.tables import PairTables
from ihlab.certify.walks import Array, Automaton, Multipliers

BUDGET = 2000
"""The most shortest paths that are computed for a question and a level. Beyond them, the answer is "unknown"."""
SPLITS = 30
"""The most steps that look for a good split."""
STEPS = 200
"""The most levels that are tried for a bound."""
NARROWEST = 1e-9
"""The logarithm of the quotient of two ratios below which they are not cut."""

Lightest = Callable[[Array, Automaton, Array], tuple[Array, Array]]


class Sign(NamedTuple):
    """What is known of the margins of a length: whether all are above a level, and a walk of the least known margin.

    `margin` is an upper bound of that of `walk`. Without a walk it is inf.
    """

    above: bool
    margin: float
    walk: Array


class Part(NamedTuple):
    """What is tested at once: rivals start .. stop - 1, and ratios of the first head's normaliser and each other one's.

    `split` is where the search for a split begins.
    """

    start: int
    stop: int
    low: Array
    high: Array
    split: Array


class Bounds:
    """Bounds the margins of a question. `lightest` finds lightest walks: the check has its own."""

    def __init__(
        self,
        tables: PairTables,
        answer: int,
        automaton: Automaton,
        lightest: Lightest = walks.lightest_walks,
        budget: int = BUDGET,
    ) -> None:
        self.tables, self.answer, self.automaton = tables, answer, automaton
        self.lightest, self.budget = lightest, budget
        self.n_heads, self.n_outputs = len(tables.mass.low), len(tables.direct.low)
        self._ratios = cache(self._ratios_of)

    @cached_property
    def floor(self) -> float:
        """A lower bound of all margins: that of a sequence on which every head gains the least that it can."""
        ones, zeros = np.ones(self.n_heads), np.zeros(self.n_heads)
        least = np.inf
        for rival in range(self.n_outputs):
            if rival != self.answer:
                of_rival = Part(rival, rival + 1, ones[1:], ones[1:], zeros[1:])
                gain = self._gains(of_rival, 0.0, ones, zeros)[0]
                total = fsum(gain.min(axis=(1, 2, 3)))
                least = min(least, below.py_func(total))
        return float(least)

    def signs(self, lengths: Sequence[int], level: float = 0.0) -> dict[int, Sign]:
        """Return what is known of each length that has a walk."""
        low, high, least = self._ratios(tuple(lengths))
        found = {length: Sign(True, np.inf, walk) for length, walk in least.items()}
        bounded = bool((low > 0).all() and (high < np.inf).all())
        left, parts = self.budget, [(Part(0, self.n_outputs, low, high, np.zeros(self.n_heads - 1)), [*found])]
        while parts:
            part, some = parts.pop()
            some = [length for length in some if found[length].above]
            if not some or (part.stop - part.start == 1 and part.start == self.answer):
                continue
            failed, split = least, part.split
            if bounded:
                failed, near, split, used = self._failed(part, np.array(some), level)
                left -= used
                for length in some:
                    if found[length].margin == np.inf:  # a lightest walk is a better candidate than any other walk
                        found[length] = found[length]._replace(walk=near[length])
            cut = self._cut(part._replace(split=split)) if bounded and left > 0 else []
            again = []
            for length in some:
                if length in failed:
                    margin = walks.margin_above(self.tables, self.answer, failed[length])
                    known = found[length]
                    if margin < known.margin or not len(known.walk):
                        known = Sign(known.above, margin, failed[length])
                    found[length] = known._replace(above=known.above and margin > level and bool(cut))
                    again.append(length)
            parts += [(each, again) for each in cut if again]
        return found

    def smallest(self, length: int, known: Sign) -> tuple[float, float, Array]:
        """Return a lower bound of the margins of a length, the least known margin from above, and its walk.

        The level is a little below the least known margin. If a walk is found below it, the level falls to that (with
        one head, this is Dinkelbach's method of 1967). If neither is shown, it falls by more.
        """
        walk = known.walk
        margin = walks.margin_above(self.tables, self.answer, walk)
        first_slack, growth = (1e-12, 16) if self.n_heads == 1 else (1e-2, 2)
        slack = first_slack * (1 + abs(margin))
        for _ in range(STEPS):
            if not margin - slack > self.floor or margin == np.inf:
                break
            sign = self.signs([length], margin - slack)[length]
            if sign.above:
                return margin - slack, margin, walk
            if sign.margin < margin:
                margin, walk = sign.margin, sign.walk
            else:
                slack *= growth
        return self.floor, margin, walk

    def _ratios_of(self, lengths: tuple[int, ...]) -> tuple[Array, Array, dict[int, Array]]:
        """Return bounds of the ratios over all lengths that have a walk, and a walk of each."""
        mass, wanted = self.tables.mass, np.array(lengths)
        totals, found = self.lightest(mass.low[0], self.automaton, wanted)
        having = np.flatnonzero(totals < np.inf)
        light = {lengths[i]: found[i, : lengths[i]] for i in having}
        least, most = np.ones(self.n_heads), np.ones(self.n_heads)
        for head in range(self.n_heads) if self.n_heads > 1 and light else ():
            least[head] = self.lightest(mass.low[head], self.automaton, wanted)[0].min()
            most[head] = -self.lightest(-mass.high[head], self.automaton, wanted)[0].min()
        return below.py_func(least[0] / most[1:]), above.py_func(most[0] / least[1:]), light

    def _gains(self, part: Part, level: float, ratio: Array, split: Array) -> Array:
        """Return `walks.gains` for ratios [head] in the part, and a split [head]."""
        end = np.ones(self.n_heads)
        end[1:] = np.where(split[1:] > 0, part.low, part.high)
        multipliers = Multipliers(ratio, split, end)
        return walks.gains(self.tables.read, self.tables.direct, self.answer, part.start, part.stop, level, multipliers)

    def _failed(
        self, part: Part, lengths: Array, level: float
    ) -> tuple[dict[int, Array], dict[int, Array], Array, int]:
        """Test the corners of a part. Return a walk of each length that fails, and one of each.

        The split of the last test and the number of tests follow.
        """
        failed: dict[int, Array] = {}
        near: dict[int, Array] = {}
        split, used = part.split, 0
        for corner in product(*zip(part.low, part.high, strict=True)):
            some = lengths
            for _ in range(SPLITS):
                whole = np.array([below.py_func(-fsum(split)), *split])
                gain = self._gains(part, level, np.array([1.0, *corner]), whole)
                totals, found = self.lightest(walks.weigh(self.tables.mass, gain), self.automaton, some)
                used += 1
                near |= {int(length): walk[:length] for length, walk in zip(some, found, strict=True)}
                fails = ~(totals > 0)
                some, totals, found = some[fails], totals[fails], found[fails]
                if not len(some) or self.n_heads == 1:
                    break
                split = self._better(part, split, totals[-1], found[-1, : some[-1]])
            failed |= {length: near[length] for length in some.tolist()}
        return failed, near, split, used

    def _better(self, part: Part, split: Array, total: float, walk: Array) -> Array:
        """Return a split at which a walk, which weighs `total`, weighs more than 0: the nearest one."""
        first, *others = walks.on_walk(self.tables.mass.low, walk).sum(axis=-1)
        slope = np.where(split > 0, part.low, part.high) * np.array(others) - first
        size = np.abs(slope).max()
        if size == 0:
            return split
        unit = slope / size
        return split - 1.1 * (total / size) / (unit @ unit) * unit

    def _cut(self, part: Part) -> list[Part]:
        """Return two halves of a part: of its rivals, or of the ratio that is known least; none if it is too narrow."""
        if part.stop - part.start > 1:
            middle = (part.start + part.stop) // 2
            return [part._replace(stop=middle), part._replace(start=middle)]
        widths = np.log(part.high) - np.log(part.low)
        if not len(widths) or widths.max() < NARROWEST:
            return []
        head = int(widths.argmax())
        low, high = part.low.copy(), part.high.copy()
        low[head] = high[head] = np.sqrt(part.low[head]) * np.sqrt(part.high[head])
        return [part._replace(high=high), part._replace(low=low)]
