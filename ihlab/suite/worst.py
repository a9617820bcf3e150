"""The worst ablation: the lowest faithfulness of the true heads, over all ways to patch the other
heads.
"""

from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Bool

from ihlab.attribution.circuits import Faithfulness, mask_of
from ihlab.attribution.problems import Problem
from ihlab.runtime.settings import own_settings

MOST_OTHERS = 8
"""With at most this many heads that are not true, every subset of these is measured; else 2^8
random ones (seed 0).
"""


@own_settings()
def worst_ablation(problem: Problem, true: Bool[np.ndarray, " head"]) -> dict[str, Any]:
    """Return the lowest faithfulness over the sets of heads that contain the true heads.

    The result has the `faithfulness` (`ihlab.attribution.circuits`), the heads [layer, head] that
    were `ablated`, the number of `sets` that were measured, and whether these were `sampled`.
    """
    heads, others = problem.nodes("head").to_numpy(), np.flatnonzero(~true)
    sampled = len(others) > MOST_OTHERS
    if sampled:
        patched = np.random.default_rng(0).random((2**MOST_OTHERS, len(others))) < 0.5
    else:
        patched = np.array(list(product((False, True), repeat=len(others))), dtype=bool)
    clean = [mask_of([*np.flatnonzero(true), *others[~each]]) for each in patched]
    faithfulness = Faithfulness(problem)(clean)
    least = int(faithfulness.argmin())
    ablated = heads[others[patched[least]]].tolist()
    return {
        "faithfulness": float(faithfulness[least]),
        "ablated": ablated,
        "sets": len(patched),
        "sampled": sampled,
    }
