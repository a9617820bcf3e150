"""Robustness: what its cells change, and verdicts on made-up tables."""

import numpy as np
import pandas as pd

from figures.robustness.study import CELLS, GIVEN, NO_POSITIONS, ROBUSTNESS
from ihlab.recipes.induction import KV1, V2, V4
from ihlab.study.claim import judged
from tests.comparisons import AROUND, cell


def verdicts(times):
    """Verdicts on the speed-up by setting, and on its causes. `times` has the steps of each model
    (in a setting).
    """
    found = {
        (model, setting): times.get((model, setting), times[model])
        for model, setting in map(dict.values, CELLS)
    }
    data = pd.concat(cell(*each, middle / 100 * AROUND) for each, middle in found.items())
    claims = judged(ROBUSTNESS.claims(data, "laptop"))
    return {claim.setting["positions"]: claim.verdict for claim in claims[:11]}, [
        claim.verdict for claim in claims[11:]
    ]


def test_verdicts_can_come_out_either_way():
    faster, causes = verdicts({KV1: 100, GIVEN: 300, V2: 700, V4: 690})
    assert set(faster.values()) == set(causes) == {"holds"}
    faster, causes = verdicts({KV1: 600, GIVEN: 650, V2: 700, V4: 300})
    assert set(faster.values()) == set(causes) == {"fails"}
    faster, _ = verdicts(
        {KV1: 100, GIVEN: 300, V2: 700, V4: 690, (V2, "ALiBi"): 110, (V2, NO_POSITIONS): np.inf}
    )
    assert [setting for setting, verdict in faster.items() if verdict != "holds"] == ["ALiBi"]
