"""Questions about attention variants on the toy settings: seeds, thresholds, and the rates that are
tried.

A cell of these studies is a variant in a setting. A variant has its own learning rate in each
setting.
"""

from typing import Any, Literal

from ihlab.recipes.toy_settings import SETTINGS
from ihlab.study.ask import Ask, difference, ratio
from ihlab.study.study import Tuned

TUNED = Tuned(rates=lambda cell: SETTINGS[cell["setting"]].rates)
FEW_SEEDS, MANY_SEEDS = range(8), range(8, 40)
"""Seeds of the claims.

At its best rate a variant's steps differ between seeds by a factor of two. Eight seeds against
eight cannot tell a ratio of 1 from 1.25. A setting has `MANY_SEEDS` if a question says that one
variant is not better. The first eight seeds showed this need, so `MANY_SEEDS` excludes them.
"""

Kind = Literal["slower", "not faster", "much faster", "as accurate"]
LIMITS: dict[Kind, tuple[float, Literal["above", "below"]]] = {
    "slower": (1.25, "above"),
    "not faster": (1 / 1.25, "above"),
    "much faster": (1 / 2, "below"),
    "as accurate": (0.3, "below"),
}
"""Threshold of each kind of question, and the side on which its sentence holds.

The number is the ratio of steps, one / other; for "as accurate" the difference between the highest
accuracies, other - one.
"""


def asked(one: str, kind: Kind, other: str, label: str, /, **fields: Any) -> Ask:
    """Return a question about two variants in a setting, such as whether `one` is slower than
    `other`.
    """
    cell, beside = ({"variant": variant, "setting": label} for variant in (one, other))
    number = difference(beside, cell, "best") if kind == "as accurate" else ratio(cell, beside)
    threshold, side = LIMITS[kind]
    fields[side] = threshold
    return Ask(number=number, **fields)
