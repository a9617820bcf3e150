"""Robustness: what its cells change, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.induction import KV1, V2, V4
from ihlab.studies.robustness import CELLS, GIVEN, LEARNED, NO_POSITIONS, ROBUSTNESS, ROPE, config
from ihlab.training.clamp import Clamp
from tests.comparisons import AROUND, cell


def test_the_laptops_cells():
    configs = {" | ".join(each.values()): config(each, "laptop") for each in CELLS}
    assert len(configs) == 11 * 2 + 4
    vanilla = {curve.partition(" | ")[2]: c for curve, c in configs.items() if curve.startswith(V2)}
    told = {
        name: (c.model.positional, c.model.n_heads, c.model.rotary_base, c.weight_decay) for name, c in vanilla.items()
    }
    assert told == {
        "RoPE": ("rope", 4, 1e5, 0.1),
        "RoPE, base 100": ("rope", 4, 1e2, 0.1),
        "ALiBi": ("alibi", 4, 1e5, 0.1),
        "learned positions": ("learned", 4, 1e5, 0.1),
        "no positions": ("none", 4, 1e5, 0.1),
        "RoPE, 2 heads": ("rope", 2, 1e5, 0.1),
        "RoPE, 1 head": ("rope", 1, 1e5, 0.1),
        "learned positions, 2 heads": ("learned", 2, 1e5, 0.1),
        "learned positions, 1 head": ("learned", 1, 1e5, 0.1),
        "RoPE, no weight decay": ("rope", 4, 1e5, 0.0),
        "learned positions, no weight decay": ("learned", 4, 1e5, 0.0),
    }  # fmt: skip
    for setting in (ROPE, LEARNED):
        given = configs[f"{GIVEN} | {setting}"]
        assert given.clamped == (Clamp(what="pattern", layer=0, head=0, value="previous"),)
        assert given.replace(clamped=()) == vanilla[setting]
        assert configs[f"{V4} | {setting}"].model.n_layers == 4
    assert all(c.model.n_layers == 1 for curve, c in configs.items() if curve.startswith(KV1))


def verdicts(times):
    """Verdicts on the speed-up by setting, and on its causes. `times` has the steps of each model (in a setting)."""
    found = {(model, setting): times.get((model, setting), times[model]) for model, setting in map(dict.values, CELLS)}
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
    faster, _ = verdicts({KV1: 100, GIVEN: 300, V2: 700, V4: 690, (V2, "ALiBi"): 110, (V2, NO_POSITIONS): np.inf})
    assert [setting for setting, verdict in faster.items() if verdict != "holds"] == ["ALiBi"]


@pytest.mark.slow
def test_both_stages_at_smoke_scale(smoke):
    _, folder = smoke("robustness")
    assert folder.data().groupby("kind").size().to_dict() == {"run": 12, "tuning": 12}
    assert len(folder.claims()) == 5
